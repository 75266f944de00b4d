"""Printed commands work when they are pasted where they are read."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.incidents.read import read
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Project

NEW = 'title = "new"\n[[messages]]\nrole = "user"\ncontent = "Hm?"\n'
RECORDED = re.compile(r"no golden '\w+'; record it: (pytest .*)")
OWN_GOLDEN = """
from pytest_vllm_gates.goldens import lock_golden

def test_own(server, golden):
    golden.check("ours", lock_golden("ours", {"x": b"y"}))
"""
OWN_FAILING = """
def test_own(server, family):
    assert not family.name, "it is wrong"
"""


@pytest.fixture
def incidents_gate(project: Project) -> None:  # noqa: ARG001 - its gates are those that are shipped
    path = Path(pytest_vllm_gates.gates.__file__).with_name("test_incidents.py")
    shutil.copy(path, verdict_gates.GATES)


def below(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go into a folder of the project."""
    folder = project.path / "a folder" / "deep"
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


def paste(project: Project, command: str, *more: str) -> pytest.RunResult:
    """Run a printed command in the current folder."""
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    return project.pytest(*arguments, *more)


def ran(project: Project, folder: str = "out") -> tuple[str, ...]:
    return ("--model", "qwen3.5", "--lane", "fake", "--gates-report", str(project.path / folder))


def results_of(project: Project) -> list[dict[str, Any]]:
    return [
        test
        for family in project.verdict()["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    ]


def record_command(project: Project) -> str:
    """Return the one command that the last run's reasons give to record a golden."""
    reasons = "\n".join(str(test["reason"]) for test in results_of(project))
    (command,) = set(RECORDED.findall(reasons))
    return str(command)


@pytest.mark.parametrize("inside", ["", "a folder"])
def test_golden_of_a_named_checkpoint_is_recorded_by_the_printed_command(
    project: Project, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    shutil.copytree(miniatures.path("qwen3.5"), project.path / "my weights")
    project.write("conversations/new.toml", NEW)
    checkpoint = "./my weights"
    if inside:
        below(project, monkeypatch)
        checkpoint = "../../my weights"
    chosen = ("-m", "words", "-k", "new")
    project.pytest(*ran(project), *chosen, "--checkpoint", checkpoint)
    command = record_command(project)
    assert "--lane fake" in command
    assert paste(project, command, "-k", "new").ret == 0
    assert (project.path / "golden/qwen3.5/main/my weights/new.txt").is_file()
    assert project.pytest(*ran(project), *chosen, "--checkpoint", checkpoint).ret == 0


def test_golden_of_a_gate_of_ones_own_is_recorded_by_the_printed_command(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = project.write("mine/test_own.py", OWN_GOLDEN)
    below(project, monkeypatch)
    project.pytest(*ran(project), str(gate), "-k", "test_own")
    assert paste(project, record_command(project)).ret == 0
    assert (project.path / "golden/qwen3.5/main/miniature/ours.txt").is_file()


def test_command_that_restores_a_golden_names_its_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = project.write("golden/qwen3.5/main/miniature/plain.txt", "golden 1: lock: x\n\n12 ")
    for command in (["init", "-q"], ["add", "golden"]):
        subprocess.run(["git", *command], cwd=project.path, check=True)
    golden.write_text("golden 1: lock: x\n\n12  mess")
    below(project, monkeypatch)
    project.pytest(*ran(project), "-m", "words", "-k", "plain")
    (reason,) = [test["reason"] for test in results_of(project) if test["outcome"] == "FAIL"]
    (restore,) = re.findall(r"restore it \((git checkout -- .*?)\) or record it", reason)
    subprocess.run(shlex.split(restore), check=True)
    assert golden.read_text() == "golden 1: lock: x\n\n12 "


def test_commands_of_the_report_start_at_the_projects_root(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = project.path / "weights"
    shutil.copytree(miniatures.path("qwen3.5"), weights)
    project.write("mine/test_own.py", OWN_FAILING)
    below(project, monkeypatch)
    arguments = ("--checkpoint", "../../weights", "../../mine", "-k", "test_own")
    assert project.pytest(*ran(project), *arguments).ret == 1
    (command,) = [test["reproduce"] for test in results_of(project) if "reproduce" in test]
    assert "--checkpoint ./weights mine/test_own.py" in command
    monkeypatch.chdir(project.path)
    result = paste(project, command)
    assert "1 failed" in result.stdout.str()
    assert "checkpoint weights" in result.stdout.str()


def test_next_commands_of_the_report_go_where_they_were_typed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("conversations/new.toml", NEW)
    below(project, monkeypatch)
    result = project.pytest(*ran(project), "-m", "words")
    printed = [line.removeprefix("  next: ") for line in result.outlines if "  next: " in line]
    assert printed and all(command.startswith("pytest ") for command in printed)
    assert project.verdict()["next"] == [
        f"(cd 'a folder/deep' && {command})" for command in printed
    ]


@pytest.mark.usefixtures("incidents_gate")
def test_incidents_are_sent_again_by_the_printed_commands(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = project.write("mine/test_own.py", OWN_FAILING)
    folder = below(project, monkeypatch)
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", "an out", str(gate))
    result = project.pytest(*arguments, "-k", "test_own")
    assert result.ret == 1
    printed = "\n".join(result.outlines)
    (terminal,) = re.findall(r"^  incident: own: (pytest --repro .*)$", printed, re.MULTILINE)
    again = ("--gates-report", str(project.path / "out"))
    result = paste(project, terminal, *again)
    assert "incident: REPRODUCED" in result.outlines, result.stdout.str()

    project.pytest(*arguments[:4], *again, str(gate), "-k", "test_own")
    (incident,) = project.verdict()["incidents"]
    monkeypatch.chdir(project.path)
    result = paste(project, incident["command"])
    assert "incident: REPRODUCED" in result.outlines, result.stdout.str()
    (left,) = (folder / "an out" / "incidents").iterdir()
    command = read(left).incident.command
    assert str(project.path) not in command
    result = paste(project, command)
    assert "incident: REPRODUCED" in result.outlines, result.stdout.str()


@pytest.mark.usefixtures("incidents_gate")
def test_incident_outside_of_the_project_is_named_alone(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    gate = project.write("mine/test_own.py", OWN_FAILING)
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", str(outside), str(gate))
    project.pytest(*arguments, "-k", "test_own")
    (left,) = (outside / "incidents").iterdir()
    assert read(left).incident.command == f"pytest --repro {left.name} mine/test_own.py"


@pytest.mark.usefixtures("incidents_gate")
def test_incident_of_an_attached_server_is_sent_there_again(
    project: Project, fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "some key or other")
    url = fakes("loses-reasoning").base_url
    attached = ("--base-url", url, "--api-key-env", "A_KEY")
    result = project.pytest("--model", "qwen3.5", *attached, "-m", "streaming", "-k", "plain")
    (command,) = [
        line.partition(": pytest")[2] for line in result.outlines if "  incident:" in line
    ]
    assert f"--base-url {url} --api-key-env A_KEY" in command
    result = paste(project, f"pytest {command}")
    assert "incident: REPRODUCED" in result.outlines, result.stdout.str()
