"""The folder of kept servers: their states, leftovers, and which processes are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from survivors import alive, none_of, until

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import started
from pytest_vllm_gates.server.kept import private, registry
from pytest_vllm_gates.server.kept.record import Host, KeptRecord, ProcessId
from pytest_vllm_gates.server.kept.registry import KeptState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_vllm_gates.server.kept.registry import KeptEntry

GONE = ProcessId(pid=2**22 - 1, started=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return registry.open_root()


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield ProcessId(pid=process.pid, started=started(process.pid) or 0)
        process.kill()


def record(folder: Path, **changes: Any) -> KeptEntry:
    """Write a record and return what is made of it."""
    server_folder = registry.create_folder(folder)
    values: dict[str, Any] = {
        "name": server_folder.name, "family": "qwen3.5", "lane": "cpu", "checkpoint": "miniature",
        "base_url": "http://127.0.0.1:9/v1", "model": "m", "renderer": False, "server": GONE,
        "keeper": GONE, "tree": (), "host": registry.this_host(),
        "booted": "2026-11-20T10:00:00+00:00", "times": {},
        "evidence": {"log": str(server_folder / "log")},
        "inventory": {}, "fingerprint": {},
    }  # fmt: skip
    kept_record = KeptRecord(**{**values, **changes})
    private.write(server_folder / "record.json", kept_record.model_dump_json())
    private.write(server_folder / "hold", "60\n")
    return entry_of(server_folder)


def entry_of(server_folder: Path) -> KeptEntry:
    (match,) = (
        kept_entry
        for kept_entry in registry.entries(server_folder.parent)
        if kept_entry.folder == server_folder
    )
    return match


def test_only_the_recorded_process_is_a_keeper(folder: Path, sleeper: ProcessId) -> None:
    assert record(folder, keeper=sleeper).state is KeptState.IDLE
    # Its id was given again.
    reused = sleeper.model_copy(update={"started": sleeper.started - 1})
    assert record(folder, keeper=reused).state is KeptState.LOST


def test_held_server_is_in_use(folder: Path, sleeper: ProcessId) -> None:
    kept_entry = record(folder, keeper=sleeper)
    hold = kept_entry.hold
    assert hold.acquire()
    assert entry_of(kept_entry.folder).state is KeptState.IN_USE
    assert not registry.stop(entry_of(kept_entry.folder))
    assert alive(sleeper.pid)
    hold.release()


def test_only_orphans_are_stopped(folder: Path, sleeper: ProcessId) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        stolen = ProcessId(pid=stranger.pid, started=1)
        kept_entry = record(folder, server=stolen, tree=(sleeper, stolen))
        assert kept_entry.state is KeptState.LOST
        assert registry.clear(kept_entry)
        until(lambda: none_of([sleeper.pid]), "the orphan lives")
        assert alive(stranger.pid), "a process that only has the id was ended"
        stranger.kill()
    assert not kept_entry.folder.exists()


def test_records_from_before_a_reboot_are_stale(folder: Path, sleeper: ProcessId) -> None:
    before = registry.this_host().model_copy(update={"boot": "before"})
    kept_entry = record(folder, host=before, keeper=sleeper, server=sleeper)
    assert kept_entry.state is KeptState.LOST
    assert registry.clear(kept_entry)
    assert alive(sleeper.pid), "what runs now has nothing to do with it"


@pytest.mark.parametrize("change", [{"name": "other", "boot": "x"}, {"pids": "pid:[7]"}])
def test_records_of_other_machines_are_left_alone(
    folder: Path, sleeper: ProcessId, change: dict[str, str]
) -> None:
    host = Host.model_validate(registry.this_host().model_dump() | change)
    assert record(folder, host=host, keeper=sleeper).state is KeptState.ELSEWHERE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else"}'])
def test_invalid_record_is_unreadable(folder: Path, text: str) -> None:
    server_folder = registry.create_folder(folder)
    private.write(server_folder / "record.json", text)
    assert entry_of(server_folder).state is KeptState.BOOTING
    os.utime(server_folder, (1, 1))
    assert entry_of(server_folder).state is KeptState.UNREADABLE
    hold = entry_of(server_folder).hold
    assert hold.acquire()
    os.utime(server_folder, (1, 1))
    assert entry_of(server_folder).state is KeptState.BOOTING
    hold.release()


@pytest.mark.parametrize(
    ("mode", "message"), [(0o640, "is open to others (mode 0640)"), (0o600, "")]
)
def test_key_must_be_readable_only_by_its_owner(folder: Path, mode: int, message: str) -> None:
    kept_entry = record(folder)
    path = kept_entry.folder / "key"
    path.write_text("k")
    path.chmod(mode)
    if not message:
        assert registry.key(kept_entry) == "k"
        return
    with pytest.raises(UserError, match="its key is not safe") as error:
        registry.key(kept_entry)
    assert message in str(error.value)


def test_key_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    kept_entry = record(folder)
    (tmp_path / "elsewhere").write_text("k")
    (kept_entry.folder / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        registry.key(kept_entry)


def test_uncreatable_folder_is_reported_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="name another place in XDG_STATE_HOME"):
        registry.open_root()
