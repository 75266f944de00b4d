"""The commands that can turn HOLD into PROMOTE, in the order in which to run them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.flags import without
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.server.types import DID_NOT_BOOT, GONE
from pytest_vllm_gates.verdict.verdict import NOTHING_PASSED, Promotion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.verdict.verdict import GateResult, Verdict

# pytest's options that leave out a part of a run: with a value, and without.
SELECTING = ("-m", "-k", "--deselect", "--ignore", "--ignore-glob", "--maxfail")
PARTIAL = (
    "-x", "--exitfirst", "--lf", "--last-failed", "--sw", "--stepwise", "--sw-skip",
    "--stepwise-skip",
)  # fmt: skip


@dataclass(frozen=True)
class JudgedFamily:
    """One family of a run: its `--model`, and the sources that explain why it does not answer."""

    model: str
    log: str | None = None
    """The server's log, if there is one."""
    preflight: str | None = None
    """The command that checks whether it can boot; None if nothing is booted."""


@dataclass(frozen=True)
class RunSummary:
    """The facts of a run that the next commands depend on."""

    arguments: tuple[str, ...]
    """pytest's arguments, without paths that name single gates and options that never promote."""
    families: Mapping[str, JudgedFamily]
    gates: frozenset[str]
    """The shipped gates: each has a marker with its name."""
    names: Mapping[str, tuple[str, ...]]
    """The names of the plugin's options by their field; the name to print comes first."""


def commands(verdict: Verdict, run: RunSummary) -> tuple[str, ...]:
    """Return the commands; none if no command helps, or if the verdict is not HOLD.

    The last one is the whole run: only a whole run can promote.
    """
    failed = sum(gate.outcome is Outcome.FAIL for gate in verdict.gates)
    # A failure, here on both lanes, has to be fixed or waived; no command does that.
    open_reasons = [reason for reason in verdict.reasons[failed:] if reason != NOTHING_PASSED]
    if verdict.promotion is not Promotion.HOLD or not open_reasons:
        return ()
    arguments = without(run.arguments, SELECTING, PARTIAL)
    steps = [
        *_why_blocked(verdict.gates, run),
        *_recordings(verdict.gates, run, arguments, "update_golden", golden=True),
        *_recordings(verdict.gates, run, arguments, "update_baseline", golden=False),
        _typed(_with_more_pairs(verdict.gates, arguments, run.names["pairs"])),
    ]
    return tuple(dict.fromkeys(steps))


def _why_blocked(gates: Iterable[GateResult], run: RunSummary) -> Iterator[str]:
    for gate in gates:
        family_run = run.families.get(gate.family)
        if not family_run or not gate.reason.startswith((DID_NOT_BOOT, GONE)):
            continue
        if family_run.log:
            yield shlex.join(["vllm-gates", "explain", family_run.log])
        elif family_run.preflight:
            yield family_run.preflight


def _recordings(
    gates: Iterable[GateResult],
    run: RunSummary,
    full_run: Sequence[str],
    option: str,
    *,
    golden: bool,
) -> Iterator[str]:
    """Yield the recording commands: one for all families in which the same is missing."""
    missing: dict[str, list[str]] = {}
    for gate in gates:
        if any(test.outcome is Outcome.MISSING and test.breaks is golden for test in gate.tests):
            missing.setdefault(gate.family, []).append(gate.gate)
    alike: dict[tuple[str, ...], list[str]] = {}
    for family, missed in missing.items():
        alike.setdefault(tuple(missed), []).append(family)
    model_names, flag = run.names["models"], run.names[option][0]
    for names, families in alike.items():
        arguments = full_run
        if set(families) != set(run.families):
            models = [run.families[family].model for family in families]
            arguments = [model_names[0], ",".join(models), *without(full_run, model_names)]
        marked = [name for name in names if name in run.gates]
        # A project's own gate may have no marker; its file has its name.
        own = [f"test_{name}" for name in names if name not in run.gates]
        for selector, chosen in (("-m", marked), ("-k", own)):
            if chosen:
                yield _typed([*arguments, selector, " or ".join(chosen), flag])


def _with_more_pairs(
    gates: Iterable[GateResult], arguments: Sequence[str], names: Sequence[str]
) -> Sequence[str]:
    """Return the run with twice the pairs of boots, if the current number could not decide."""
    tried = [
        len(test.evidence["pairs"])
        for gate in gates
        for test in gate.tests
        if test.outcome is Outcome.INCONCLUSIVE and gate.gate == "throughput"
        if test.evidence.get("pairs")
    ]
    return [*without(arguments, names), names[0], str(2 * max(tried))] if tried else arguments


def _typed(arguments: Sequence[str]) -> str:
    return shlex.join(["pytest", *arguments])
