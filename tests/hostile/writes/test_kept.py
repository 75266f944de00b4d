"""A disk that is full while a server is kept, or a kept one used, ends no run and no server."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from server.kept import test_keeper
from server.kept.test_keeper import keep_serving
from survivors import alive, none_of, until
from write_faults import after_each_fault, tree

from pytest_vllm_gates.server.kept import private, registry as kept_registry
from pytest_vllm_gates.server.kept.hold import Hold

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project
    from pytest_vllm_gates.server.kept.process import KeptProcess

folder, process = test_keeper.folder, test_keeper.process


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_private_file_is_replaced_whole(tmp_path: Path) -> None:
    def prepare(place: Path) -> None:
        place.mkdir()
        (place / "key").write_text("old")

    for place, call, error in after_each_fault(
        lambda place: private.write(place / "key", "new"), tmp_path, prepare
    ):
        assert tree(place) == {"key": b"old" if error else b"new"}, call
        assert error or (place / "key").stat().st_mode & 0o777 == 0o600


def test_private_file_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="was not written"):
        private.write(tmp_path / "gone" / "key", "new")
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("name", ["record.json", "key"])
def test_server_that_cannot_be_kept_goes_on(folder: Path, process: KeptProcess, name: str) -> None:
    (folder / name / "in its place").mkdir(parents=True)
    with pytest.raises(OSError, match=f"{name} was not written"):
        keep_serving(process)
    assert alive(process.server.pid)
    process.stop(0.0)
    until(lambda: none_of([process.server.pid, process.keeper.pid]))
    assert not folder.exists()


def test_log_that_cannot_be_copied_ends_nothing(process: KeptProcess, folder: Path) -> None:
    until(lambda: "it sleeps" in process.log.read_text())
    shutil.rmtree(process.log.parent)
    process.log.parent.write_text("a file")
    process.stop(0.0)
    assert not folder.exists()
    process.log.parent.unlink()


def test_log_that_finds_no_room_is_named(
    process: KeptProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: "it sleeps" in process.log.read_text())
    monkeypatch.setattr(os, "fsync", full)
    process.stop(0.0)
    assert process.problem.startswith(f"{process.log} was not written: No space left on device")
    assert [*process.log.parent.iterdir()] == []
    assert not folder.exists()


def test_idle_limit_stays_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Hold(tmp_path)
    hold.idle_limit_s = 900.0
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        hold.idle_limit_s = 5.0
    assert hold.idle_limit_s == 900.0
    monkeypatch.undo()
    hold.idle_limit_s = 5.0
    assert hold.idle_limit_s == 5.0


@pytest.mark.parametrize("step", ["create_folder", "write"])
def test_run_whose_server_cannot_be_kept_goes_on(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    step: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setattr(kept_registry if step == "create_folder" else private, step, full)
    result = project.gates("--keep-server", "--require-promotion")
    assert result.ret == 0, result.stdout.str()
    assert "verdict: PROMOTE" in result.outlines
    notes = [line for line in result.outlines if line.startswith("  the server is not kept: ")]
    assert len(notes) == 1
    assert "No space left on device" in notes[0]
    assert [*kept_registry.root().iterdir()] == []
    assert set(project.outcomes().values()) == {"PASS"}
