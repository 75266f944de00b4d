"""Decides PROMOTE, REJECT or HOLD from the outcomes of a run's gates, with reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_vllm_gates.outcomes import GONE, STANDING, Outcome, TestResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_vllm_gates.catalog.waivers import SettledWaiver

# A gate has the worst outcome of its tests; a test that does not apply comes last.
SEVERITY = (
    Outcome.FAIL,
    Outcome.BLOCKED,
    Outcome.MISSING,
    Outcome.INCONCLUSIVE,
    Outcome.WAIVED,
    Outcome.KNOWN,
    Outcome.PASS,
    Outcome.NOT_APPLICABLE,
)
NOTHING_PASSED = "no gate passed"
EXIT_OK = 0
EXIT_BROKEN = 1
EXIT_HOLD = 6


class Promotion(StrEnum):
    """May the bundle go out?"""

    PROMOTE = "PROMOTE"
    REJECT = "REJECT"
    HOLD = "HOLD"


@dataclass(frozen=True)
class GateResult:
    """One gate of one family: the worst of its tests, and the tests."""

    family: str
    gate: str
    outcome: Outcome
    reason: str
    tests: tuple[TestResult, ...]
    cause: str = ""
    """The kind of cause, if it is known: "infrastructure" is not a fault of the served bundle."""

    @property
    def shown_outcome(self) -> str:
        """The outcome, with its cause if it has one."""
        return f"{self.outcome} ({self.cause})" if self.cause else str(self.outcome)

    @property
    def duration_s(self) -> float:
        """Total seconds of its tests."""
        return sum(test.duration_s for test in self.tests)

    @property
    def requests(self) -> int:
        """Total number of requests of its tests."""
        return sum(test.requests for test in self.tests)

    @property
    def breaks(self) -> bool:
        """Whether it counts as broken for the exit status."""
        return any(test.outcome is Outcome.FAIL or test.breaks for test in self.tests)


@dataclass(frozen=True)
class Verdict:
    """The verdict of a run, the reasons by weight, and every gate's result."""

    promotion: Promotion
    reasons: tuple[str, ...]
    gates: tuple[GateResult, ...]
    standing: tuple[str, ...] = ()
    """Known defects that were seen: they do not block the promotion."""
    gone: tuple[str, ...] = ()
    """Known defects that were expected, but not seen: their entries can be removed."""
    waivers: tuple[SettledWaiver, ...] = ()
    """The waivers that concern this run, with their state."""
    next: tuple[str, ...] = ()
    """Commands that would turn HOLD into PROMOTE, in the order in which to run them."""

    def exit_status(self, *, require_promotion: bool) -> int:
        """Return 1 if something broke, else 0; with `require_promotion` only PROMOTE gives 0."""
        if require_promotion:
            return {
                Promotion.PROMOTE: EXIT_OK,
                Promotion.REJECT: EXIT_BROKEN,
                Promotion.HOLD: EXIT_HOLD,
            }[self.promotion]
        return EXIT_BROKEN if any(gate.breaks for gate in self.gates) else EXIT_OK


def decide(
    results: Iterable[TestResult],
    expected: Mapping[str, Sequence[str]],
    *,
    not_applicable: Mapping[tuple[str, str], str] | None = None,
    holds: Sequence[str] = (),
    fails_there: Collection[tuple[str, str, str]] = (),
    there: str = "",
    waivers: Sequence[SettledWaiver] = (),
) -> Verdict:
    """Turn the outcomes of a run into its verdict.

    `expected` names the gates of every family that must have a result; a gate without one leads to
    HOLD, unless `not_applicable` has a reason for that (family, gate). `holds` are reasons of the
    run as a whole: it was recording, it was cut short. Nothing unseen passes.

    `fails_there` are the checks, by family, gate and test, that also fail on the lane `there`: a
    defect of the deployment, which leads to HOLD and is not a reason to roll back. `waivers` are
    reported with the verdict; the outcomes already include the failures that they cover.
    """
    gates = _by_gate(results, expected, not_applicable or {})
    failed = [gate for gate in gates if gate.outcome is Outcome.FAIL]
    new = {id(gate): _fails_here_alone(gate, fails_there) for gate in failed}
    rejects = [
        _sentence([gate], shared_reason=_reason(new[id(gate)])) for gate in failed if new[id(gate)]
    ]
    undecided = [
        f"{_sentence([gate])} (not a regression: it also fails on lane {there})"
        for gate in failed
        if not new[id(gate)]
    ]
    undecided += [
        _sentence(alike)
        for outcome in (Outcome.BLOCKED, Outcome.MISSING, Outcome.INCONCLUSIVE)
        for alike in _alike(gate for gate in gates if gate.outcome is outcome)
    ]
    ran = {(gate.family, gate.gate) for gate in gates}
    unseen = [
        f"{family}: {gate} did not run"
        for family, names in expected.items()
        for gate in names
        if (family, gate) not in ran
    ]
    reasons = [*rejects, *undecided, *unseen, *holds]
    tests = sum(test.outcome is Outcome.PASS for gate in gates for test in gate.tests)
    if not rejects and not tests:
        reasons.append(NOTHING_PASSED)
    standing, gone = _known_defects(gates, STANDING), _known_defects(gates, GONE)
    if reasons:
        promotion = Promotion.REJECT if rejects else Promotion.HOLD
        return Verdict(promotion, tuple(reasons), gates, standing, gone, tuple(waivers))
    applicable = sum(gate.outcome is not Outcome.NOT_APPLICABLE for gate in gates)
    waived = sum(test.outcome is Outcome.WAIVED for gate in gates for test in gate.tests)
    summary = f"all {applicable} applicable gates passed ({tests} tests)"
    if waived:
        summary += f"; failures that are waived: {waived}"
    if standing:
        summary += f"; known defects seen: {len(standing)}"
    return Verdict(Promotion.PROMOTE, (summary,), gates, standing, gone, tuple(waivers))


def _fails_here_alone(
    gate: GateResult, fails_there: Collection[tuple[str, str, str]]
) -> list[TestResult]:
    return [
        test
        for test in gate.tests
        if test.outcome is Outcome.FAIL and (test.family, test.gate, test.test) not in fails_there
    ]


def _alike(gates: Iterable[GateResult]) -> list[list[GateResult]]:
    """Return groups of a family's gates that are undecided for the same reason."""
    groups: dict[tuple[str, str], list[GateResult]] = {}
    for gate in gates:
        groups.setdefault((gate.family, gate.reason), []).append(gate)
    return [*groups.values()]


def _known_defects(gates: Iterable[GateResult], key: str) -> tuple[str, ...]:
    """Return the known defects in the tests' evidence under `key`, once each."""
    return tuple(
        dict.fromkeys(
            f"{gate.family}: {gate.gate}: {sentence}"
            for gate in gates
            for test in gate.tests
            for sentence in test.evidence.get(key, ())
        )
    )


def _by_gate(
    results: Iterable[TestResult],
    expected: Mapping[str, Sequence[str]],
    not_applicable: Mapping[tuple[str, str], str],
) -> tuple[GateResult, ...]:
    tests: dict[tuple[str, str], list[TestResult]] = {}
    for result in results:
        tests.setdefault((result.family, result.gate), []).append(result)
    gates = [_judge(family, gate, tuple(group)) for (family, gate), group in tests.items()]
    gates += [
        GateResult(family, gate, Outcome.NOT_APPLICABLE, reason, ())
        for (family, gate), reason in not_applicable.items()
        if (family, gate) not in tests and gate in expected.get(family, ())
    ]
    return tuple(gates)


def _judge(family: str, gate: str, tests: tuple[TestResult, ...]) -> GateResult:
    outcome = next(
        candidate for candidate in SEVERITY if any(test.outcome is candidate for test in tests)
    )
    worst = [test for test in tests if test.outcome is outcome]
    reason = "" if outcome is Outcome.PASS else _reason(worst)
    causes = {test.cause for test in worst}
    cause = causes.pop() if len(causes) == 1 else ""
    return GateResult(family, gate, outcome, reason, tests, cause)


def _reason(tests: Sequence[TestResult]) -> str:
    """Return the first of their reasons, and the number of other reasons."""
    reasons = list(dict.fromkeys(test.reason for test in tests))
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _sentence(gates: Sequence[GateResult], shared_reason: str | None = None) -> str:
    """Return the reason that gates share; `shared_reason` replaces it if it is given."""
    first = gates[0]
    reason = (first.reason if shared_reason is None else shared_reason).strip()
    line = reason.splitlines()[0] if reason else "no reason given"
    if len(gates) == 1:
        return f"{first.family}: {first.gate} is {first.shown_outcome}: {line}"
    names = ", ".join(gate.gate for gate in gates)
    return f"{first.family}: {len(gates)} gates are {first.shown_outcome}: {line} ({names})"
