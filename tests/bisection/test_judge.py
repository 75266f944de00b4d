"""A verdict is good, bad, or decides nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.bisection import judge
from pytest_vllm_gates.bisection.judge import BisectQuestion

CASES: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({"a": "PASS"}, (), "GOOD"),
    ({"a": "PASS", "b": "FAIL"}, (), "BAD"),
    ({"a": "PASS", "b": "FAIL"}, ("a",), "GOOD"),
    ({"a": "FAIL", "b": "PASS"}, ("a",), "BAD"),
    ({"a": "KNOWN", "b": "PASS"}, ("a",), "INCONCLUSIVE"),
    ({"a": "KNOWN", "b": "PASS"}, (), "GOOD"),
    ({"a": "BLOCKED"}, (), "INCONCLUSIVE"),
    ({"b": "PASS"}, ("a",), "INCONCLUSIVE"),
    ({"a": "N/A"}, (), "INCONCLUSIVE"),
    ({}, (), "INCONCLUSIVE"),
]


def document(outcomes: dict[str, str]) -> dict[str, Any]:
    tests = [
        {"test": name, "outcome": outcome, "reason": "of two\n  lines"}
        for name, outcome in outcomes.items()
    ]
    return {"repro": None, "families": [{"gates": [{"tests": tests}]}]}


@pytest.mark.parametrize(("outcomes", "failing", "answer"), CASES)
def test_outcomes_decide(outcomes: dict[str, str], failing: tuple[str, ...], answer: str) -> None:
    assert judge.answer(document(outcomes), failing).answer == answer


def test_failing_tests_and_their_reason_are_on_one_line() -> None:
    judged = judge.answer(document({"a": "FAIL", "b": "FAIL", "c": "FAIL"}))
    assert judged.failed == ("a", "b", "c")
    assert judged.why == "FAIL a: of two lines; FAIL b: of two lines and 1 more"


@pytest.mark.parametrize(
    ("replayed", "answer"),
    [("REPRODUCED", "BAD"), ("NOT MET", "BAD"), ("NOT REPRODUCED", "GOOD"),
     ("DIFFERENT", "INCONCLUSIVE"), ("NOT JUDGED", "INCONCLUSIVE")],
)  # fmt: skip
def test_replay_decides(replayed: str, answer: str) -> None:
    assert judge.answer({"repro": {"answer": replayed}, "families": []}).answer == answer


def test_question_becomes_pytests_options() -> None:
    gates = BisectQuestion("qwen3.5", ("tools", "stop"), "null")
    assert gates.arguments() == ["--model", "qwen3.5", "-m", "tools or stop", "-k", "null"]
    assert BisectQuestion(repro=Path("/out/i")).arguments() == ["--repro", "/out/i"]
