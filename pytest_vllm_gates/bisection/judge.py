"""Runs the gates, or an incident's replay, on one lane, and reads what that came to."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bisection.types import TrialAnswer
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.outcomes import Outcome
from pytest_vllm_gates.process.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

POLL_S = 0.5
VERDICT = "verdict.json"
REPLAYS = {
    "REPRODUCED": TrialAnswer.BAD,
    "NOT MET": TrialAnswer.BAD,
    "NOT REPRODUCED": TrialAnswer.GOOD,
}
DECIDES = (Outcome.PASS, Outcome.KNOWN, Outcome.WAIVED)


@dataclass(frozen=True)
class BisectQuestion:
    """What is asked of each bundle."""

    model: str | None = None
    gates: tuple[str, ...] = ()
    """Expressions for `-m`."""
    test: str | None = None
    """An expression for `-k`."""
    repro: Path | None = None

    def arguments(self) -> list[str]:
        """Return the arguments of pytest that ask it."""
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
) -> tuple[TrialAnswer, str]:
    """Ask a lane; return the answer and why. `folder` gets the report and the log.

    Blocks for as long as a boot and the gates take.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VERDICT).unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "--rootdir", str(project), "-p", "no:cacheprovider",
             *question.arguments(), "--lane", str(lane), "--gates-report", str(folder)]  # fmt: skip
    log = folder / "pytest.log"
    log.unlink(missing_ok=True)
    started = time.monotonic()
    process = GuardedProcess(words, env=dict(os.environ), log=log, cwd=project)
    try:
        while process.poll() is None:
            say(f"{lane.stem}: {time.monotonic() - started:.0f} s")
            process.wait(POLL_S)
    finally:
        status = process.stop()
    try:
        document = bounded_read.json(folder / VERDICT, unique=True, whole=True)
    except (OSError, FileError):
        return TrialAnswer.INCONCLUSIVE, f"no verdict: pytest ended with {status}, see {log}"
    return answer(document)


def answer(document: Mapping[str, Any]) -> tuple[TrialAnswer, str]:
    """Return what a verdict's document says of the bundle, and why.

    A test that FAILs is bad, or an incident that is reproduced. Good is what was judged and did not
    fail. A server that did not boot is bad for the boot gate alone: nothing else was judged.
    """
    if replayed := document.get("repro"):
        what = str(replayed["answer"])
        return REPLAYS.get(what, TrialAnswer.INCONCLUSIVE), what
    tests = [
        test
        for family in document["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    ]
    failed = [test for test in tests if test["outcome"] == Outcome.FAIL]
    if failed:
        return TrialAnswer.BAD, _listed(failed)
    if unsure := [test for test in tests if test["outcome"] in UNSURE]:
        return TrialAnswer.INCONCLUSIVE, _listed(unsure)
    if any(test["outcome"] in DECIDES for test in tests):
        return TrialAnswer.GOOD, f"{len(tests)} tests, none fails"
    return TrialAnswer.INCONCLUSIVE, "no test was judged"


UNSURE = (Outcome.BLOCKED, Outcome.INCONCLUSIVE, Outcome.MISSING)
SHOWN = 2


def _listed(tests: Sequence[Mapping[str, Any]]) -> str:
    words = [f"{test['outcome']} {test['test']}: {test['reason']}"[:160] for test in tests[:SHOWN]]
    more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
    return "; ".join(words) + more
