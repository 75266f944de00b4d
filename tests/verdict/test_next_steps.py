"""What turns HOLD into PROMOTE is said as commands, in the order in which they help."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.verdict.next_steps import JudgedFamily, RunSummary, commands
from pytest_vllm_gates.verdict.verdict import Verdict, decide

GATES = ("boot", "tools", "words", "throughput")
PREFLIGHT = "vllm-gates preflight --model glm --checkpoint miniature --lane cpu"


def ran(
    typed: str, *models: str, log: str | None = None, preflight: str | None = None
) -> RunSummary:
    families = {model: JudgedFamily(model, log, preflight) for model in models or ("glm",)}
    return RunSummary(tuple(shlex.split(typed)), families, frozenset(GATES))


def one(
    gate: str,
    outcome: str = "PASS",
    *,
    family: str = "glm",
    reason: str = "",
    breaks: bool = False,
    **evidence: Any,
) -> TestResult:
    return TestResult(
        family, gate, "test_x", Outcome(outcome), reason, breaks=breaks, evidence=evidence
    )


def verdict(*results: TestResult, holds: tuple[str, ...] = (), expected: Any = None) -> Verdict:
    gates = dict.fromkeys((each.family for each in results), ("boot",))
    return decide(results, expected or gates, holds=holds)


def told(typed: str, *results: TestResult, **how: Any) -> list[str]:
    return list(commands(verdict(one("boot"), *results, **how), ran(typed)))


@pytest.mark.parametrize(
    "found",
    [
        verdict(one("boot")),
        verdict(one("boot", "FAIL")),
        verdict(one("boot", "FAIL"), one("words", "MISSING")),
        verdict(one("boot", "N/A")),
        decide(
            [one("boot"), one("words", "FAIL")],
            {"glm": ["boot"]},
            fails_there={("glm", "words", "test_x")},
        ),
    ],
)
def test_where_no_command_helps_none_is_said(found: Verdict) -> None:
    assert commands(found, ran("--model glm --update-golden -m boot")) == ()


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("--model glm -m boot", "pytest --model glm"),
        ("--model glm -k 'a or b' --lane cpu -x", "pytest --model glm --lane cpu"),
        ("--model glm --deselect=a::b --maxfail=1 mine", "pytest --model glm mine"),
        ("--model glm --update-golden", "pytest --model glm"),
        ("--model glm -m throughput --update-baseline", "pytest --model glm"),
        ("--model './my weights' --soak 30m", "pytest --model './my weights' --soak 30m"),
    ],
)
def test_what_saw_a_part_or_recorded_is_run_again_whole(typed: str, whole: str) -> None:
    assert told(typed, holds=("held",)) == [whole]
    assert told(typed, expected={"glm": ["boot", "tools"]}) == [whole]


def test_what_is_missing_is_recorded_before_the_whole_run() -> None:
    found = told(
        "--model glm --lane cpu -m 'words or tools'",
        one("words", "MISSING", breaks=True),
        one("tools", "MISSING", breaks=True),
        one("throughput", "MISSING"),
    )
    assert found == [
        "pytest --model glm --lane cpu -m 'words or tools' --update-golden",
        "pytest --model glm --lane cpu -m throughput --update-baseline",
        "pytest --model glm --lane cpu",
    ]


def test_a_gate_of_ones_own_is_chosen_by_its_file() -> None:
    found = told("--model glm mine", one("own", "MISSING", breaks=True))
    assert found == [
        "pytest --model glm mine -k test_own --update-golden",
        "pytest --model glm mine",
    ]


def test_families_that_miss_the_same_are_recorded_at_once() -> None:
    results = [
        one("words", "MISSING", family=family, breaks=True)
        for family in ("glm", "gemma", "deepseek")
    ]
    found = verdict(*results, one("tools", "MISSING", family="gemma", breaks=True))
    families = ("glm", "gemma", "deepseek")
    assert commands(found, ran("--model all -q", *families)) == (
        "pytest --model glm,deepseek -q -m words --update-golden",
        "pytest --model gemma -q -m 'words or tools' --update-golden",
        "pytest --model all -q",
    )
    found = verdict(*results)
    assert commands(found, ran("--model all -q", *families))[0] == (
        "pytest --model all -q -m words --update-golden"
    )


def test_pairs_that_could_not_decide_are_doubled() -> None:
    undecided = one("throughput", "INCONCLUSIVE", pairs=[{}, {}, {}])
    assert told("--model glm --against stable", undecided) == [
        "pytest --model glm --against stable --pairs 6"
    ]
    assert told("--model glm --against stable --pairs 3", undecided) == [
        "pytest --model glm --against stable --pairs 6"
    ]
    assert told("--model glm", one("load", "INCONCLUSIVE", pairs=[1])) == ["pytest --model glm"]


@pytest.mark.parametrize(
    "reason", ["the server did not boot: it ended", "the server is gone: it died"]
)
def test_what_is_blocked_is_looked_into_first(reason: str) -> None:
    found = verdict(one("words"), one("tools", "BLOCKED", reason=reason), one("boot"))
    typed = "--model glm -m tools"
    assert commands(found, ran(typed, log="/x y/server.log", preflight=PREFLIGHT)) == (
        "vllm-gates explain '/x y/server.log'",
        "pytest --model glm",
    )
    assert commands(found, ran(typed, preflight=PREFLIGHT)) == (PREFLIGHT, "pytest --model glm")
    assert commands(found, ran(typed)) == ("pytest --model glm",)


def test_what_is_blocked_for_something_else_says_so_itself() -> None:
    found = verdict(one("boot"), one("tools", "BLOCKED", reason="no database"))
    assert commands(found, ran("--model glm", log="/x.log")) == ("pytest --model glm",)


def test_a_command_is_said_once() -> None:
    blocked = [
        one(gate, "BLOCKED", reason="the server is gone: it died") for gate in ("words", "tools")
    ]
    found = verdict(one("boot"), *blocked)
    assert len(commands(found, ran("--model glm", log="/x.log"))) == 2
