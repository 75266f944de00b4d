"""Runs the shipped gates and reads their report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "qwen3.5"
REPORT = "report"


@dataclass(frozen=True)
class JudgedRun:
    """A run's exit status, its `verdict.json` and what it printed."""

    status: int
    verdict: dict[str, Any]
    output: str

    def gates(self, outcome: str) -> set[str]:
        """Return the gates that came to `outcome`."""
        return {gate["gate"] for gate in self._gates() if gate["outcome"] == outcome}

    def reasons(self, outcome: str = "FAIL") -> list[str]:
        """Return why, test by test."""
        return [
            test["reason"]
            for gate in self._gates()
            for test in gate["tests"]
            if test["outcome"] == outcome
        ]

    @property
    def complaints(self) -> list[str]:
        """Why, of every test that did not pass: what a test shows where it expected otherwise."""
        return [
            f"{outcome}: {reason}"
            for outcome in ("FAIL", "INCONCLUSIVE")
            for reason in self.reasons(outcome)
        ]

    def failed(self, gate: str) -> dict[str, str]:
        """Return why a gate's checks failed, by the name of the check."""
        return {
            test["test"].removeprefix("test_").partition("[")[0]: test["reason"]
            for gate_report in self._gates()
            for test in gate_report["tests"]
            if gate_report["gate"] == gate and test["outcome"] == "FAIL"
        }

    def _gates(self) -> list[dict[str, Any]]:
        (family,) = self.verdict["families"]
        gates: list[dict[str, Any]] = family["gates"]
        return gates


def read_judged_run(status: int, folder: Path, output: str) -> JudgedRun:
    """Read the report of a run that ended."""
    verdict = json.loads((folder / REPORT / "verdict.json").read_text(encoding="utf-8"))
    return JudgedRun(status, verdict, output)


def arguments(*options: str) -> list[str]:
    """Return the arguments of a run of the shipped gates that writes a report.

    It judges `MODEL` unless the options name another.
    """
    model = [] if "--model" in options else ["--model", MODEL]
    return [*model, "--gates-report", REPORT, *options]
