"""The report of a bisection: one sentence, the trials, and links to read on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import releases
from pytest_vllm_gates.nightly import hosts as nightly_hosts
from pytest_vllm_gates.nightly.types import is_label

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.bisection.plan import BisectPlan
    from pytest_vllm_gates.bisection.state import Trial
    from pytest_vllm_gates.bisection.types import AxisCulprit, AxisSpan, BisectResult
    from pytest_vllm_gates.nightly.types import CommitRow


SECONDS = 60  # of a minute
SHOWN = 100
"""Characters of a trial's reason in the table; the state has all of it."""
NAMED = 6
"""Versions between two in a sentence; the document has all of them."""


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
    if culprit.newer_good:
        words = f"{culprit.axis} up to {culprit.first_bad} (good from {culprit.last_good} on)"
    else:
        words = f"{culprit.axis} {culprit.first_bad} (last good {culprit.last_good})"
    between = (*culprit.untried, *culprit.without_wheel)
    if not between:
        return words
    named = ", ".join(between) if len(between) <= NAMED else f"{len(between)} between"
    return f"{words}, or one of {named}"


def notes(result: BisectResult) -> list[str]:
    """Return links about the change that was found: release notes, or the commits."""
    addresses = []
    for culprit in result.culprits:
        ends = culprit.last_good, culprit.first_bad
        if culprit.axis == "vllm" and any(is_label(end) for end in ends):
            older, newer = ends[::-1] if culprit.newer_good else ends
            addresses.append(nightly_hosts.shipped().change(older, newer))
        elif culprit.axis == "vllm":
            noted = (*culprit.untried, ends[0] if culprit.newer_good else ends[1])
            addresses += [releases.notes(version) for version in noted]
    return addresses


def commit_lines(result: BisectResult, commits: CommitRow | None) -> list[str]:
    """Return the commit that changed the outcome, if commits were searched."""
    labels = [
        culprit.last_good if culprit.newer_good else culprit.first_bad
        for culprit in result.culprits
        if culprit.axis == "vllm"
    ]
    found = [each for label in labels if commits and (each := commits.commit(label))]
    return [f"  commit {each.label}, {each.date}: {each.subject}" for each in found]


def plan_lines(axes: Sequence[AxisSpan], plan: BisectPlan, fixed: Sequence[str]) -> list[str]:
    """Return the plan as a person reads it."""
    lines = ["axes that differ:"]
    for axis in axes:
        inner = f" (between: {', '.join(axis.versions[1:-1])})" if axis.versions[2:] else ""
        if axis.missing:
            wheels, missing = len(axis.versions) - 2, sum(map(len, axis.missing))
            inner = (
                f" (between: {wheels + missing} commits, {wheels} with a wheel for this machine)"
            )
        lines.append(f"  {axis.name}: {axis.good} -> {axis.bad}{inner}"[:300])
    if fixed:
        lines.append(f"differs, but cannot be mixed on this machine: {', '.join(fixed)}")
    lines.append(f"at most {plan.boots} boots for one culprit:")
    lines += [f"  {boots:3}  {step}" for step, boots in plan.steps]
    return lines


def wheels_line(size: int | None) -> str:
    """Return the cost of a bundle at a commit besides its boot; `size`: a wheel's, in bytes."""
    wheel = f"a wheel of {size / 1e6:,.0f} MB" if size else "a wheel"
    return f"each bundle at a commit downloads {wheel} and makes its own environment"


def trial_line(position: int, trial: Trial) -> str:
    """Return a trial as a row of the table of trials."""
    return (
        f"{position:3}  {trial.mixture:32}  vLLM {trial.vllm:8}  {trial.answer:12}  "
        f"{trial.seconds:4.0f} s  {trial.why[:SHOWN]}"
    )


def result_lines(
    result: BisectResult,
    trials: Sequence[Trial],
    pinned: Path | None,
    model: str | None,
    commits: CommitRow | None = None,
) -> list[str]:
    """Return the result as a person reads it, below the table of trials."""
    minutes = sum(trial.seconds for trial in trials) / SECONDS
    lines = [sentence(result), f"  {len(trials)} trials, {minutes:.0f} minutes"]
    lines += commit_lines(result, commits)
    lines += [
        f"  {'commits' if '/compare/' in address else 'release notes'}: {address}"
        for address in notes(result)
    ]
    if pinned:
        lines.append(f"  a lane without it, not tried yet: {pinned}")
        lines.append(f"  try it: pytest --model {model or 'NAME'} --lane {pinned}")
    return lines


def section(
    result: BisectResult, trials: Sequence[Trial], lanes: tuple[str, str], pinned: str | None
) -> dict[str, Any]:
    """Return the result as a section of the bad lane's report; `lanes`: good, then bad."""
    return {
        "good": lanes[0],
        "bad": lanes[1],
        "sentence": sentence(result),
        "certain": result.certain,
        "confidence": round(result.confidence, 6),
        "culprits": [
            {
                "axis": each.axis,
                "last_good": each.last_good,
                "first_bad": each.first_bad,
                "between": [*each.untried, *each.without_wheel],
                "items": list(each.items),
            }
            for each in result.culprits
        ],
        "reasons": list(result.reasons),
        "trials": [
            {
                "bundle": trial.mixture,
                "number": trial.number,
                "answer": str(trial.answer),
                "vllm": trial.vllm,
                "seconds": round(trial.seconds, 1),
                "why": trial.why,
            }
            for trial in trials
        ],
        "read": notes(result),
        "lane": pinned,
    }


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
