"""What a bisection found: one sentence, the trials, and where to read on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pytest_vllm_gates.catalog import releases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.bisection.plan import BisectPlan
    from pytest_vllm_gates.bisection.state import Trial
    from pytest_vllm_gates.bisection.types import AxisCulprit, AxisSpan, BisectResult


SECONDS = 60  # of a minute
SHOWN = 100
"""Characters of a trial's reason in the table; the state has all of it."""


def sentence(result: BisectResult) -> str:
    """Return the result as one sentence."""
    if not result.culprits:
        return f"not found: {'; '.join(result.reasons)}"
    what = " together with ".join(_culprit(culprit) for culprit in result.culprits)
    if result.certain:
        sure = "both sides were tried three times and answered alike"
    else:
        share = min(result.confidence, 0.9999)
        sure = f"not certain (probability {share:.2%} by the trials)"
        if result.reasons:
            sure += f": {'; '.join(result.reasons)}"
    return f"the culprit is {what}; {sure}"


def _culprit(culprit: AxisCulprit) -> str:
    if culprit.items:
        return f"{culprit.axis} {', '.join(culprit.items)}"
    if culprit.axis not in ("vllm", "transformers", "torch", "tokenizers"):
        return f"{culprit.axis} ({culprit.last_good} -> {culprit.first_bad})"
    if _ended(culprit):
        words = f"{culprit.axis} up to {culprit.first_bad} (good from {culprit.last_good} on)"
    else:
        words = f"{culprit.axis} {culprit.first_bad} (last good {culprit.last_good})"
    return words + (f", or one of {', '.join(culprit.untried)}" if culprit.untried else "")


def _ended(culprit: AxisCulprit) -> bool:
    """Return whether the good release is the newer one: the defect ended with it."""
    return Version(culprit.last_good) > Version(culprit.first_bad)


def notes(result: BisectResult) -> list[str]:
    """Return the addresses of the release notes of the change that was found."""
    return [
        releases.notes(version)
        for culprit in result.culprits
        if culprit.axis == "vllm"
        for version in (
            *culprit.untried,
            culprit.last_good if _ended(culprit) else culprit.first_bad,
        )
    ]


def plan_lines(axes: Sequence[AxisSpan], plan: BisectPlan, fixed: Sequence[str]) -> list[str]:
    """Return the plan as a person reads it."""
    lines = ["axes that differ:"]
    for axis in axes:
        inner = f" (between: {', '.join(axis.versions[1:-1])})" if axis.versions[2:] else ""
        lines.append(f"  {axis.name}: {axis.good} -> {axis.bad}{inner}"[:300])
    if fixed:
        lines.append(f"differs and is the same in every bundle here: {', '.join(fixed)}")
    lines.append(f"at most {plan.boots} boots for one culprit:")
    lines += [f"  {boots:3}  {step}" for step, boots in plan.steps]
    return lines


def trial_line(position: int, trial: Trial) -> str:
    """Return a trial as a row of the table of trials."""
    return (
        f"{position:3}  {trial.mixture:32}  vLLM {trial.vllm:8}  {trial.answer:12}  "
        f"{trial.seconds:4.0f} s  {trial.why[:SHOWN]}"
    )


def result_lines(
    result: BisectResult, trials: Sequence[Trial], pinned: Path | None, model: str | None
) -> list[str]:
    """Return the result as a person reads it, below the table of trials."""
    minutes = sum(trial.seconds for trial in trials) / SECONDS
    lines = [sentence(result), f"  {len(trials)} trials, {minutes:.0f} minutes"]
    lines += [f"  release notes: {address}" for address in notes(result)]
    if pinned:
        lines.append(f"  a lane without it, not tried yet: {pinned}")
        lines.append(f"  try it: pytest --model {model or 'NAME'} --lane {pinned}")
    return lines


def document(
    result: BisectResult, trials: Sequence[Trial], axes: Sequence[AxisSpan], pinned: str | None
) -> dict[str, Any]:
    """Return the result as a document."""
    return {
        "sentence": sentence(result),
        "found": bool(result.culprits),
        "certain": result.certain,
        "confidence": round(result.confidence, 6),
        "culprits": [dataclasses.asdict(culprit) for culprit in result.culprits],
        "reasons": list(result.reasons),
        "axes": [dataclasses.asdict(axis) for axis in axes],
        "trials": [dataclasses.asdict(trial) for trial in trials],
        "release_notes": notes(result),
        "lane": pinned,
    }
