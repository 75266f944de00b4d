"""The next commands of a HOLD promote when they are typed one after the other."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

NEW = 'title = "new"\n[[messages]]\nrole = "user"\ncontent = "Hm?"\n'
BASELINE_GATE = """
from pathlib import Path
import pytest
from pytest_vllm_gates.outcomes import MissingBaseline

def test_speed(server, family, pytestconfig):
    kept = Path(pytestconfig.rootpath, "speed")
    if pytestconfig.getoption("gates_update_baseline"):
        kept.write_text("1")
    elif not kept.exists():
        raise MissingBaseline("none is recorded")
"""


def next_commands(result: pytest.RunResult) -> list[str]:
    start = "  next: "
    return [line.removeprefix(start) for line in result.outlines if line.startswith(start)]


def run_typed(project: Project, command: str) -> pytest.RunResult:
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    assert arguments[:2] == ["-p", "no:cacheprovider"], "what project.pytest adds"
    return project.pytest(*arguments[2:])


def test_commands_typed_in_order_promote(project: Project) -> None:
    project.write("conversations/new.toml", NEW)
    project.write("mine/test_speed.py", BASELINE_GATE)
    result = project.gates("mine", "-m", "words or boot", "-k", "words or boots")
    commands = next_commands(result)
    before = "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out mine"
    assert commands == [f"{before} -m words --update-golden", before]
    assert project.verdict()["next"] == commands

    assert run_typed(project, commands[0]).ret == 0
    assert project.verdict()["next"] == [before], "a recording run is not followed by itself"
    result = run_typed(project, commands[1])
    commands = next_commands(result)
    assert commands == [f"{before} -k test_speed --update-baseline", before]
    assert run_typed(project, commands[0]).ret == 0
    result = run_typed(project, commands[1])
    assert "verdict: PROMOTE" in result.outlines
    assert next_commands(result) == project.verdict()["next"] == []


@pytest.mark.parametrize("path", ["test_boot.py", "test_boot.py::test_boots"])
def test_command_omits_the_path_of_a_single_gate(project: Project, path: str) -> None:
    from pytest_vllm_gates.verdict import gates as verdict_gates  # noqa: PLC0415 - where the fixture has put the gates

    result = project.gates(str(verdict_gates.GATES / path), "--rootdir=.")
    (command,) = next_commands(result)
    assert command.endswith(" --model qwen3.5 --lane fake --gates-report out --rootdir=.")
    assert "verdict: PROMOTE" in run_typed(project, command).outlines


def test_rejected_run_has_no_next_command(project: Project) -> None:
    assert next_commands(project.gates("-m", "boot", faults="bangs")) == []


def test_an_interrupted_run_is_run_again(project: Project) -> None:
    project.write("mine/test_own.py", "def test_own(server, family): raise KeyboardInterrupt\n")
    result = project.gates("mine", "-k", "test_own or test_boots")
    assert next_commands(result) == [
        "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out mine"
    ]


def test_blocked_run_explains_the_servers_log(project: Project) -> None:
    result = project.gates("-m", "words", faults="dies")
    log = project.report / "qwen3.5" / "server.log"
    assert next_commands(result) == [
        f"vllm-gates explain {log}",
        "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out",
    ]
    assert log.is_file()


def test_pairs_need_another_lane(project: Project) -> None:
    result = project.gates("--pairs", "4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --pairs limits the boots of --against NAME: give both" in result.errlines
    result = project.gates("--against", "fake", "--pairs", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --pairs: expected an integer >= 2, got '1'" in result.errlines
