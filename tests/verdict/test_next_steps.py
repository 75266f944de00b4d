"""The commands that turn HOLD into PROMOTE, in the order in which they help."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.options import spelling
from pytest_vllm_gates.options.table import Options
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.session import commands as session_commands
from pytest_vllm_gates.verdict.next_steps import JudgedFamily, RunSummary, commands
from pytest_vllm_gates.verdict.verdict import Verdict, decide

OPTIONS = Options(rootdir=Path("/nowhere"), verbose=False)
GATES = ("boot", "tools", "words", "throughput")
PREFLIGHT = "vllm-gates preflight --model glm --checkpoint miniature --lane cpu"


def run_summary(
    typed: str, *models: str, log: str | None = None, preflight: str | None = None
) -> RunSummary:
    families = {model: JudgedFamily(model, log, preflight) for model in models or ("glm",)}
    arguments = session_commands.promoting(shlex.split(typed), OPTIONS)
    return RunSummary(arguments, families, frozenset(GATES), spelling.by_field(OPTIONS))


def result(
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


def steps(typed: str, *results: TestResult, **options: Any) -> list[str]:
    return list(commands(verdict(result("boot"), *results, **options), run_summary(typed)))


@pytest.mark.parametrize(
    "decision",
    [
        verdict(result("boot")),
        verdict(result("boot", "FAIL")),
        verdict(result("boot", "FAIL"), result("words", "MISSING")),
        verdict(result("boot", "N/A")),
        decide(
            [result("boot"), result("words", "FAIL")],
            {"glm": ["boot"]},
            fails_there={("glm", "words", "test_x")},
        ),
    ],
)
def test_no_command_where_none_helps(decision: Verdict) -> None:
    assert commands(decision, run_summary("--model glm --update-golden -m boot")) == ()


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("--model glm -m boot", "pytest --model glm"),
        ("--model glm -k 'a or b' --lane cpu -x", "pytest --model glm --lane cpu"),
        ("--model glm --deselect=a::b --maxfail=1 mine", "pytest --model glm mine"),
        ("--model glm --update-golden", "pytest --model glm"),
        ("--model glm -m throughput --update-baseline", "pytest --model glm"),
        ("--model './my weights' --soak 30m", "pytest --model './my weights' --soak 30m"),
    ],
)
def test_partial_or_recording_run_is_repeated_whole(typed: str, command: str) -> None:
    assert steps(typed, holds=("held",)) == [command]
    assert steps(typed, expected={"glm": ["boot", "tools"]}) == [command]


def test_missing_goldens_are_recorded_before_the_full_run() -> None:
    lines = steps(
        "--model glm --lane cpu -m 'words or tools'",
        result("words", "MISSING", breaks=True),
        result("tools", "MISSING", breaks=True),
        result("throughput", "MISSING"),
    )
    assert lines == [
        "pytest --model glm --lane cpu -m 'words or tools' --update-golden",
        "pytest --model glm --lane cpu -m throughput --update-baseline",
        "pytest --model glm --lane cpu",
    ]


def test_projects_own_gate_is_selected_by_its_file() -> None:
    lines = steps("--model glm mine", result("own", "MISSING", breaks=True))
    assert lines == [
        "pytest --model glm mine -k test_own --update-golden",
        "pytest --model glm mine",
    ]


def test_families_missing_the_same_share_one_command() -> None:
    results = [
        result("words", "MISSING", family=family, breaks=True)
        for family in ("glm", "gemma", "deepseek")
    ]
    decision = verdict(*results, result("tools", "MISSING", family="gemma", breaks=True))
    families = ("glm", "gemma", "deepseek")
    assert commands(decision, run_summary("--model all -q", *families)) == (
        "pytest --model glm,deepseek -q -m words --update-golden",
        "pytest --model gemma -q -m 'words or tools' --update-golden",
        "pytest --model all -q",
    )
    decision = verdict(*results)
    assert commands(decision, run_summary("--model all -q", *families))[0] == (
        "pytest --model all -q -m words --update-golden"
    )


def test_inconclusive_run_doubles_the_pairs() -> None:
    undecided = result("throughput", "INCONCLUSIVE", pairs=[{}, {}, {}])
    assert steps("--model glm --against stable", undecided) == [
        "pytest --model glm --against stable --pairs 6"
    ]
    assert steps("--model glm --against stable --pairs 3", undecided) == [
        "pytest --model glm --against stable --pairs 6"
    ]
    assert steps("--model glm", result("load", "INCONCLUSIVE", pairs=[1])) == ["pytest --model glm"]


@pytest.mark.parametrize(
    "reason", ["the server did not boot: it ended", "the server is gone: it died"]
)
def test_blocked_gate_is_explained_first(reason: str) -> None:
    decision = verdict(result("words"), result("tools", "BLOCKED", reason=reason), result("boot"))
    typed = "--model glm -m tools"
    assert commands(decision, run_summary(typed, log="/x y/server.log", preflight=PREFLIGHT)) == (
        "vllm-gates explain '/x y/server.log'",
        "pytest --model glm",
    )
    assert commands(decision, run_summary(typed, preflight=PREFLIGHT)) == (
        PREFLIGHT,
        "pytest --model glm",
    )
    assert commands(decision, run_summary(typed)) == ("pytest --model glm",)


def test_gate_blocked_otherwise_has_no_extra_command() -> None:
    decision = verdict(result("boot"), result("tools", "BLOCKED", reason="no database"))
    assert commands(decision, run_summary("--model glm", log="/x.log")) == ("pytest --model glm",)


def test_command_is_listed_once() -> None:
    blocked = [
        result(gate, "BLOCKED", reason="the server is gone: it died") for gate in ("words", "tools")
    ]
    decision = verdict(result("boot"), *blocked)
    assert len(commands(decision, run_summary("--model glm", log="/x.log"))) == 2
