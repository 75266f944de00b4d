"""Runs the gates, or an incident's replay, on one lane, and reads the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bisection import gates_run
from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

REPLAYS = {
    "REPRODUCED": TrialAnswer.BAD,
    "NOT MET": TrialAnswer.BAD,
    "NOT REPRODUCED": TrialAnswer.GOOD,
}
UNSURE = (Outcome.BLOCKED, Outcome.INCONCLUSIVE, Outcome.MISSING, Outcome.KNOWN, Outcome.WAIVED)
SHOWN, LONGEST = 2, 140


@dataclass(frozen=True)
class Judgement:
    """A bundle's result, its reason, and the failed tests."""

    answer: TrialAnswer
    why: str
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class BisectQuestion:
    """The tests that each bundle runs."""

    model: str | None = None
    gates: tuple[str, ...] = ()
    """Expressions for `-m`."""
    test: str | None = None
    """An expression for `-k`."""
    repro: Path | None = None

    def arguments(self) -> list[str]:
        """Return the arguments of pytest that run them."""
        words = ["--model", self.model] if self.model else []
        if self.repro is not None:
            return [*words, "--repro", str(self.repro)]
        words += ["-m", " or ".join(self.gates)] if self.gates else []
        return words + (["-k", self.test] if self.test else [])


def run(
    question: BisectQuestion,
    lane: Path,
    *,
    project: Path,
    folder: Path,
    say: Callable[[str], None],
    failing: Collection[str] = (),
) -> Judgement:
    """Test a lane. `folder` gets the report and the log; `failing` are the tests that decide.

    Blocks until boot and gates end.
    """
    status, document = gates_run.run(
        [*question.arguments(), "--lane", str(lane)],
        project=project,
        folder=folder,
        say=say,
        name=lane.stem,
    )
    if document is None:
        why = f"no verdict: pytest ended with {status}, see {folder / gates_run.LOG}"
        return Judgement(TrialAnswer.INCONCLUSIVE, why)
    return answer(document, failing)


def answer(document: Mapping[str, Any], failing: Collection[str] = ()) -> Judgement:
    """Return the judgement of a bundle from a verdict's document.

    Bad: a test FAILs, or an incident is reproduced; with `failing`, only these tests count. Good:
    each of them passes. Known defects, blocked tests and tests that were not judged decide nothing:
    a list of known defects is not evidence about the server. A server that does not boot is bad
    for the boot gate only.
    """
    if replayed := document.get("repro"):
        what = str(replayed["answer"])
        return Judgement(REPLAYS.get(what, TrialAnswer.INCONCLUSIVE), what)
    tests = [
        test
        for family in document["families"]
        for gate in family["gates"]
        for test in gate["tests"]
        if not failing or test["test"] in failing
    ]
    failed = [test for test in tests if test["outcome"] == Outcome.FAIL]
    if failed:
        return Judgement(TrialAnswer.BAD, _listed(failed), tuple(test["test"] for test in failed))
    unsure = [test for test in tests if test["outcome"] in UNSURE]
    if failing and (missing := {*failing} - {test["test"] for test in tests}):
        return Judgement(TrialAnswer.INCONCLUSIVE, f"not run: {', '.join(sorted(missing))}")
    if unsure and (failing or not any(test["outcome"] == Outcome.PASS for test in tests)):
        return Judgement(TrialAnswer.INCONCLUSIVE, _listed(unsure))
    if any(test["outcome"] == Outcome.PASS for test in tests):
        passed = f"{len(tests)} tests, none fails" if len(tests) > 1 else "passes"
        return Judgement(TrialAnswer.GOOD, passed)
    return Judgement(TrialAnswer.INCONCLUSIVE, "no test was judged")


def _listed(tests: Sequence[Mapping[str, Any]]) -> str:
    reasons = [" ".join(str(test["reason"]).split()) for test in tests[:SHOWN]]
    words = [
        f"{test['outcome']} {test['test']}: {reason}"[:LONGEST]
        for test, reason in zip(tests, reasons, strict=False)
    ]
    more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
    return "; ".join(words) + more
