"""The folder of kept servers: their states, leftovers, and which processes are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from survivors import alive, none_of, until

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import started
from pytest_vllm_gates.server.kept import private, registry
from pytest_vllm_gates.server.kept.record import Host, KeptRecord, ProcessId
from pytest_vllm_gates.server.kept.registry import KeptEntry, KeptState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """Write a record and return its entry."""
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
    # Its id was reused.
    reused = sleeper.model_copy(update={"started": sleeper.started - 1})
    assert record(folder, keeper=reused).state is KeptState.LOST


def test_locked_server_is_in_use(folder: Path, sleeper: ProcessId) -> None:
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
        assert alive(stranger.pid), "a process that only has the same id was ended"
        stranger.kill()
    assert not kept_entry.folder.exists()


def test_records_from_before_a_reboot_are_stale(folder: Path, sleeper: ProcessId) -> None:
    before = registry.this_host().model_copy(update={"boot": "before"})
    kept_entry = record(folder, host=before, keeper=sleeper, server=sleeper)
    assert kept_entry.state is KeptState.LOST
    assert registry.clear(kept_entry)
    assert alive(sleeper.pid), "the process that runs now is another one"


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
    with pytest.raises(UserError, match="set XDG_STATE_HOME to another folder"):
        registry.open_root()


@pytest.mark.parametrize("kind", ["link", "fifo", "large", "open", "another name"])
def test_record_that_is_not_a_private_file_is_not_read(folder: Path, kind: str) -> None:
    kept_entry = record(folder)
    path = kept_entry.folder / "record.json"
    if kind == "link":
        path.rename(folder / "elsewhere.json")
        path.symlink_to(folder / "elsewhere.json")
    elif kind == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif kind == "large":
        os.truncate(path, 2**40)
    elif kind == "open":
        path.chmod(0o644)
    else:
        kept_entry.folder.rename(folder / "0123ab")
    (server_folder,) = (path for path in folder.iterdir() if path.is_dir())
    os.utime(server_folder, (1, 1))
    assert entry_of(server_folder).state is KeptState.UNREADABLE


def test_folder_open_to_others_is_left_alone(
    folder: Path, sleeper: ProcessId, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_entry = record(folder, keeper=sleeper, server=sleeper)
    kept_entry.folder.chmod(0o770)
    kept_entry = entry_of(kept_entry.folder)
    assert (kept_entry.state, kept_entry.record) == (KeptState.UNSAFE, None)
    assert not registry.clear(kept_entry)
    assert not registry.stop(kept_entry, force=True)
    assert [*registry.give_way()] == []
    assert main(["servers", "stop", "--all", "--force"]) == 1
    reason = f"{kept_entry.folder} is open to others (mode 0770)"
    message = f"{kept_entry.name} was not stopped: {reason}"
    assert message in capsys.readouterr().out
    assert alive(sleeper.pid)
    assert kept_entry.folder.exists()


def test_servers_of_another_user_are_left_alone(
    folder: Path,
    sleeper: ProcessId,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept_entry = record(folder, keeper=sleeper, server=sleeper)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert [*registry.entries(folder)] == []
    assert [*registry.give_way()] == []
    for arguments in ([], ["stop", "--all"], ["stop", kept_entry.name]):
        assert main(["servers", *arguments]) == 2
        assert "belongs to " in capsys.readouterr().err
    assert not registry.stop(KeptEntry(kept_entry.folder, KeptState.UNSAFE))
    assert alive(sleeper.pid)
    assert kept_entry.folder.exists()


def test_folders_without_a_server_are_left_out(folder: Path) -> None:
    for name in ("notes", "abc", "\x1b[2Jabc", "ABCDEF"):
        (folder / name).mkdir(mode=0o700)
        os.utime(folder / name, (1, 1))
    (folder / "abcdef").symlink_to(folder / "notes")
    assert [*registry.entries(folder)] == []


def test_text_of_a_record_is_escaped_for_the_terminal(
    folder: Path, sleeper: ProcessId, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\x1b]0;owned\x07\u202e"
    record(folder, keeper=sleeper, family=text, lane=text, checkpoint="x" * 10_000)
    assert main(["servers"]) == 0
    output = capsys.readouterr().out
    assert r"\x1b]0;owned\x07\u202e" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert len(output) < 3000


def test_names_of_a_server_in_the_way_are_escaped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_entry = record(folder, family="\x1b[2J", lane="cpu")
    idle = KeptEntry(kept_entry.folder, KeptState.IDLE, kept_entry.record)
    monkeypatch.setattr(registry, "entries", lambda _: [idle])
    assert [*registry.give_way()] == [f"{kept_entry.name}, \\x1b[2J on lane cpu"]
