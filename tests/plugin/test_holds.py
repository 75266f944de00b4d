"""A run that did not see everything yields HOLD."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from survivors import none_of
from verdicts import verdict_lines

if TYPE_CHECKING:
    from conftest import Project

QUICK = ("-m", "boot")


@pytest.mark.parametrize(("require", "status"), [((), 0), (("--require-promotion",), 6)])
def test_run_of_some_gates_yields_hold(
    project: Project, require: tuple[str, ...], status: int
) -> None:
    result = project.gates(*QUICK, *require)
    assert result.ret == status
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - qwen3.5: 2 gates did not run: streaming, words",
    ]
    assert project.verdict()["exit_status"] == status


def test_partly_deselected_gate_yields_hold(project: Project) -> None:
    result = project.gates(
        "--deselect", "gates/test_words.py::test_words_are_the_recorded[qwen3.5-plain]"
    )
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - 1 tests of the gates that ran were deselected",
    ]


def test_run_without_tests_yields_hold(project: Project) -> None:
    result = project.gates("-k", "nothing_of_that_name")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert verdict_lines(result)[0] == "verdict: HOLD"
    assert project.verdict()["promotion"] == "HOLD"


def test_rejected_run_exits_with_1_if_promotion_is_required(project: Project) -> None:
    assert project.gates(*QUICK, "--require-promotion", faults="bangs").ret == 1


def test_an_interrupted_run_yields_hold(project: Project) -> None:
    project.write("mine/test_own.py", "def test_own(server): raise KeyboardInterrupt\n")
    result = project.gates("mine", "-k", "test_own or test_boots")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    lines = verdict_lines(result)
    assert lines[0] == "verdict: HOLD"
    assert "  - the run was interrupted" in lines
    assert project.verdict()["promotion"] == "HOLD"
    log = (project.report / "qwen3.5" / "server.log").read_text()
    assert none_of({int(pid) for pid in re.findall(r"pid=(\d+)", log)})


def test_run_stopped_at_first_failure_names_gates_not_run(
    project: Project,
) -> None:
    result = project.gates("-x", faults="bangs")
    assert result.ret == 1
    lines = verdict_lines(result)
    assert lines[0] == "verdict: REJECT"
    assert "  - 8 tests were collected and did not run to their end" in lines


def test_gates_that_cannot_be_collected_never_promote(project: Project) -> None:
    project.write("mine/test_own.py", "import nothing_of_that_name\n")
    result = project.gates("mine")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert verdict_lines(result)[0] == "verdict: HOLD"
