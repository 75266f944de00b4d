"""`--repro` starts the server of the incident: its flags, repairs, member and kept server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_vllm_gates.gates
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.incidents.read import digest, read
from pytest_vllm_gates.server.kept import registry as kept_registry
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Project

REPAIR = '"""Mends {name}.\n\nFound by trying."""\n'
STREAMING = ("-m", "streaming", "-k", "whole and plain")


@pytest.fixture(autouse=True)
def _gate(project: Project) -> None:  # noqa: ARG001 - its gates are those that are shipped
    path = Path(pytest_vllm_gates.gates.__file__).with_name("test_incidents.py")
    shutil.copy(path, verdict_gates.GATES)


@pytest.fixture
def _kept() -> Iterator[None]:
    """End the servers that a test keeps."""
    yield
    for entry in kept_registry.entries(kept_registry.open_root()):
        kept_registry.stop(entry, force=True)


def lane(project: Project, more: str = "", faults: str = "loses-reasoning") -> None:
    """Write the fake lane, whose flags are on the server's command line."""
    project.lane(faults, more)


def left(project: Project, *arguments: str) -> Path:
    """Have a server fail, and return a copy of its incident."""
    base = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", "out")
    assert project.pytest(*base, *STREAMING, *arguments).ret == 1
    (incident,) = project.verdict()["incidents"]
    copy = shutil.copytree(project.report / incident["path"], project.path / "copied")
    shutil.rmtree(project.report)
    return copy


def replayed(project: Project, *arguments: str) -> tuple[pytest.RunResult, list[str]]:
    """Replay the copied incident; return the run and the server's command line."""
    result = project.pytest("--repro", "copied", "--gates-report", "out", *arguments)
    assert result.ret == 1, result.stdout.str()
    assert project.verdict()["repro"]["answer"] == "REPRODUCED"
    (family,) = project.verdict()["families"]
    return result, family["boot"]["evidence"]["command"]


def flag(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command else None


def notes(project: Project) -> str:
    return "\n".join(project.verdict()["repro"]["notes"])


def test_checkpoint_that_is_a_folder_keeps_its_flags(project: Project) -> None:
    lane(project)
    incident = read(left(project)).incident
    assert Path(incident.checkpoint.source).is_dir()
    assert incident.flags
    then = incident.flags["max_model_len"]
    _, command = replayed(project)
    assert flag(command, "--max-model-len") == str(then)
    assert "not as it was" not in notes(project)


def test_flags_are_the_incidents_after_the_lane_has_changed(project: Project) -> None:
    lane(project, '[serve]\nmax_model_len = 2048\nmax_num_seqs = 3\nchat_template = "x.jinja"\n')
    left(project)
    lane(project, "[serve]\nmax_model_len = 512\n")
    result, command = replayed(project)
    assert flag(command, "--max-model-len") == "2048"
    assert flag(command, "--max-num-seqs") == "3"
    assert "--chat-template" not in command
    assert "max_model_len=2048 (now: 512)" in notes(project)
    assert "not as it was then: chat_template is not set (then: 'x.jinja')" in notes(project)
    assert "vllm gates: not as it was then: chat_template" in result.stdout.str()

    _, command = replayed(project, "--lane", "fake")
    assert flag(command, "--max-model-len") == "512"
    assert "max_model_len=512 (then: 2048)" in notes(project)


def test_repairs_are_the_incidents(project: Project) -> None:
    for name in ("one", "two"):
        project.write(f"lanes/repairs/{name}.py", REPAIR.format(name=name))
    lane(project)
    file = project.path / "lanes/fake.toml"
    file.write_text('overlay = "repairs"\n' + file.read_text())
    left(project, "--without-repair", "two")
    replayed(project)
    assert project.verdict()["lane"]["overlay"] == ["one: Mends one."]
    assert "repair" not in notes(project)
    replayed(project, "--no-overlay")
    assert project.verdict()["lane"]["overlay"] == []
    assert "without the repair one" in notes(project)

    shutil.rmtree(project.path / "copied")
    left(project, "--no-overlay")
    replayed(project)
    assert project.verdict()["lane"]["overlay"] == []


def test_member_is_the_incidents(project: Project) -> None:
    lane(project)
    base = ("--model", "qwen3.5/moe", "--lane", "fake", "--gates-report", "out")
    assert project.pytest(*base, *STREAMING).ret == 1
    (incident,) = project.verdict()["incidents"]
    shutil.copytree(project.report / incident["path"], project.path / "copied")
    replayed(project)
    (family,) = project.verdict()["families"]
    assert family["name"] == "qwen3.5/moe"
    assert "not as it was" not in notes(project)


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("checkpoint", ["miniature", "folder"])
def test_kept_server_of_the_same_setup_is_used(project: Project, checkpoint: str) -> None:
    lane(project, "[serve]\nmax_num_seqs = 3\n")
    if checkpoint == "folder":
        checkpoint = str(shutil.copytree(miniatures.path("qwen3.5"), project.path / "weights"))
    left(project, "--keep-server", "--checkpoint", checkpoint)
    result, _ = replayed(project, "--keep-server")
    assert "qwen3.5: uses the kept server" in result.stdout.str()


def test_lane_with_a_url_gets_the_requests_again(project: Project, fakes: Any) -> None:
    url = fakes("loses-reasoning").base_url
    text = f'title = "a server that runs"\nbase_url = "{url}"\n'
    project.write("lanes/fake.toml", text)
    left(project)
    result = project.pytest("--repro", "copied", "--gates-report", "out")
    assert result.ret == 1
    assert project.verdict()["lane"]["name"] == "fake"
    assert project.verdict()["repro"]["answer"] == "REPRODUCED"


def test_weights_of_a_running_server_need_not_be_here(project: Project, fakes: Any) -> None:
    lane(project)
    folder = left(project)
    document = json.loads((folder / "incident.json").read_text())
    document |= {"gate": "numerics", "test": "test_streamed_answer_equals_the_whole[qwen3.5-plain]"}
    document["checkpoint"] = {"name": "big", "source": "/not/here", "revision": None}
    document["sha256"] = digest(document)
    (folder / "incident.json").write_text(json.dumps(document))
    result = project.pytest("--repro", "copied")
    assert "is not on this machine, and its gate judges the weights" in result.stderr.str()
    streaming = verdict_gates.GATES / "test_streaming.py"
    shutil.copy(streaming, streaming.with_name("test_numerics.py"))
    result = project.pytest("--repro", "copied", "--base-url", fakes("loses-reasoning").base_url)
    assert "incident: REPRODUCED" in result.outlines, result.stderr.str()
