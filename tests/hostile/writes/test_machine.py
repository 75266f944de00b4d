"""The disk of the machine that judges is not the server's fault, wherever it fails."""

from __future__ import annotations

import errno
import os
import tempfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.outcomes import Blocked
from pytest_vllm_gates.redaction import prompts
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.session import redaction, unwritten, xdist

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

OWN_GATE = """
import errno, os
import pytest
pytestmark = pytest.mark.words
def test_own(subject):
    raise OSError(errno.{name}, os.strerror(errno.{name}))
"""


def state(report: Path | None = None) -> Any:
    """Return what these functions take of a run."""
    return SimpleNamespace(
        options=SimpleNamespace(report_dir=report), notes=[], incidents_lost={}, boots={},
        scratch=None, versions={}, inventory={}, redactor=Redactor(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("ENOSPC", "BLOCKED"), ("EROFS", "BLOCKED"), ("EIO", "BLOCKED"), ("ECONNRESET", "FAIL")],
)
def test_disk_that_fails_in_a_gate_blocks_it(project: Project, name: str, outcome: str) -> None:
    project.pytester.makepyfile(test_own=OWN_GATE.format(name=name))
    project.gates("test_own.py")
    outcomes = project.outcomes()
    (found,) = (value for test, value in outcomes.items() if "test_own" in test)
    assert found == outcome
    assert project.verdict()["promotion"] == ("HOLD" if outcome == "BLOCKED" else "REJECT")


def test_no_folder_for_the_log_blocks(tmp_path: Path) -> None:
    def full() -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")

    with pytest.raises(Blocked, match="No space left on device: x\nfree some space"):
        unwritten.working_folder(state(), full)
    run = state(tmp_path / "out")
    assert unwritten.working_folder(run, full) == tmp_path / "out"
    assert run.notes == []


def test_report_that_cannot_be_written_is_noted_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    run = state(tmp_path / "file" / "out")
    for _ in range(2):
        assert unwritten.working_folder(run, lambda: tmp_path) == tmp_path
    (note,) = run.notes
    assert f"{tmp_path}/file/out cannot be written: Not a directory" in note
    assert "ls -ld" in note
    assert str(tmp_path) in note.rpartition("logs are in")[2]


def test_incidents_lost_for_one_reason_are_one_line(tmp_path: Path) -> None:
    run = state()
    full = WriteError.of(tmp_path / "a", OSError(errno.ENOSPC, "full"))
    for test in ("test_a", "test_b", "test_c"):
        unwritten.lose_incident(run, test, full)
    unwritten.lose_incident(run, "test_d", ValueError("odd"))
    first, second = unwritten.lines(run)
    assert first.startswith(f"no incident was written of test_a and 2 more tests: {tmp_path} was")
    assert second == "no incident was written of test_d: ValueError: odd"


def test_workers_notes_reach_the_controller() -> None:
    worker, run = state(), state()
    unwritten.note(worker, "a note")
    unwritten.lose_incident(worker, "test_a", ValueError("odd"))
    output: dict[str, Any] = {}
    xdist.hand_over(SimpleNamespace(workeroutput=output), worker)  # type: ignore[arg-type]
    for _ in range(2):
        xdist.take_over(output, run)
    assert run.notes == ["a note"]
    assert run.incidents_lost == {"ValueError: odd": ["test_a", "test_a"]}


def test_key_of_prompts_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("VLLM_GATES_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("GATES_PROMPT_KEY", raising=False)
    options: Any = SimpleNamespace(
        api_key_env="OPENAI_API_KEY", load_workers=SimpleNamespace(secret=None), base_url=None,
        checkpoint=None, redact_prompts=prompts.HASH, store=None,
    )  # fmt: skip
    with pytest.raises(UserError, match="export GATES_PROMPT_KEY"):
        redaction.redactor(options, [])


def test_other_lane_is_judged_without_a_report(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what stays goes with the test
    project.write("taken", "a file")
    project.write("lanes/other.toml", (project.path / "lanes/fake.toml").read_text())
    result = project.pytest(
        "--model", "qwen3.5", "--lane", "fake", "--against", "other", "-m", "boot",
        "--gates-report", "taken/out",
    )  # fmt: skip
    text = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text
    assert "verdict: HOLD" in result.outlines
    assert "against other" in text
    assert "verdict.json was not written: Not a directory" in text
    assert "the gates did not run" not in text
    assert len([line for line in result.outlines if line.startswith("  the report's folder")]) == 1
