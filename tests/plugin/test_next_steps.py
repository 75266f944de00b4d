"""The commands that a HOLD ends with do what they say: typed one after the other they promote."""

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


def told(result: pytest.RunResult) -> list[str]:
    start = "  next: "
    return [line.removeprefix(start) for line in result.outlines if line.startswith(start)]


def typed(project: Project, command: str) -> pytest.RunResult:
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    assert arguments[:2] == ["-p", "no:cacheprovider"], "what project.pytest adds"
    return project.pytest(*arguments[2:])


def test_typed_in_their_order_they_promote(project: Project) -> None:
    project.write("conversations/new.toml", NEW)
    project.write("mine/test_speed.py", BASELINE_GATE)
    result = project.gates("mine", "-m", "words or boot", "-k", "words or boots")
    said = told(result)
    before = "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out mine"
    assert said == [f"{before} -m words --update-golden", before]
    assert project.verdict()["next"] == said

    assert typed(project, said[0]).ret == 0
    assert project.verdict()["next"] == [before], "a recording run is not followed by itself"
    result = typed(project, said[1])
    said = told(result)
    assert said == [f"{before} -k test_speed --update-baseline", before]
    assert typed(project, said[0]).ret == 0
    result = typed(project, said[1])
    assert "verdict: PROMOTE" in result.outlines
    assert told(result) == project.verdict()["next"] == []


@pytest.mark.parametrize("path", ["test_boot.py", "test_boot.py::test_boots"])
def test_a_path_to_a_single_gate_is_left_out(project: Project, path: str) -> None:
    from pytest_vllm_gates.session import collection as session_collection  # noqa: PLC0415 - where the fixture has put the gates

    result = project.gates(str(session_collection.GATES / path), "--rootdir=.")
    (command,) = told(result)
    assert command.endswith(" --model qwen3.5 --lane fake --gates-report out --rootdir=.")
    assert "verdict: PROMOTE" in typed(project, command).outlines


def test_a_rejected_run_has_no_such_command(project: Project) -> None:
    assert told(project.gates("-m", "boot", faults="bangs")) == []


def test_an_interrupted_run_is_run_again(project: Project) -> None:
    project.write("mine/test_own.py", "def test_own(server, family): raise KeyboardInterrupt\n")
    result = project.gates("mine", "-k", "test_own or test_boots")
    assert told(result) == [
        "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out mine"
    ]


def test_the_log_of_what_blocks_is_explained(project: Project) -> None:
    result = project.gates("-m", "words", faults="dies")
    log = project.report / "qwen3.5" / "server.log"
    assert told(result) == [
        f"vllm-gates explain {log}",
        "pytest -p no:cacheprovider --model qwen3.5 --lane fake --gates-report out",
    ]
    assert log.is_file()


def test_pairs_need_another_lane(project: Project) -> None:
    result = project.gates("--pairs", "4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --pairs counts the boots of --against NAME: give both" in result.errlines
    result = project.gates("--against", "fake", "--pairs", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --pairs '1' is not a whole number from 2 on" in result.errlines
