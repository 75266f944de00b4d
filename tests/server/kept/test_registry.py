"""Who is in the folder of kept servers, what is left of them, and whom that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from survivors import alive, none_of, until

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import started
from pytest_vllm_gates.server.kept import registry as kept_registry
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
    return kept_registry.opened()


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield ProcessId(pid=process.pid, started=started(process.pid) or 0)
        process.kill()


def record(folder: Path, **changes: Any) -> KeptEntry:
    """Write a record and return what is made of it."""
    own = kept_registry.made(folder)
    values: dict[str, Any] = {
        "name": own.name, "family": "qwen3.5", "lane": "cpu", "checkpoint": "miniature",
        "base_url": "http://127.0.0.1:9/v1", "model": "m", "renderer": False, "server": GONE,
        "keeper": GONE, "tree": (), "host": kept_registry.here(),
        "booted": "2026-11-20T10:00:00+00:00", "times": {}, "evidence": {"log": str(own / "log")},
        "inventory": {}, "fingerprint": {},
    }  # fmt: skip
    kept = KeptRecord(**{**values, **changes})
    (own / "record.json").write_text(kept.model_dump_json())
    (own / "hold").write_text("60\n")
    return found(own)


def found(own: Path) -> KeptEntry:
    (entry,) = (
        kept_entry for kept_entry in kept_registry.entries(own.parent) if kept_entry.folder == own
    )
    return entry


def test_only_the_very_process_that_was_recorded_is_a_keeper(
    folder: Path, sleeper: ProcessId
) -> None:
    assert record(folder, keeper=sleeper).state is KeptState.IDLE
    # Its id was given again.
    again = sleeper.model_copy(update={"started": sleeper.started - 1})
    assert record(folder, keeper=again).state is KeptState.LOST


def test_one_that_is_held_is_in_use(folder: Path, sleeper: ProcessId) -> None:
    entry = record(folder, keeper=sleeper)
    hold = entry.hold
    assert hold.acquire()
    assert found(entry.folder).state is KeptState.IN_USE
    assert not kept_registry.stop(found(entry.folder))
    assert alive(sleeper.pid)
    hold.release()


def test_orphans_are_ended_and_no_others(folder: Path, sleeper: ProcessId) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        stolen = ProcessId(pid=stranger.pid, started=1)
        entry = record(folder, server=stolen, tree=(sleeper, stolen))
        assert entry.state is KeptState.LOST
        assert kept_registry.clear(entry)
        until(lambda: none_of([sleeper.pid]), "the orphan lives")
        assert alive(stranger.pid), "a process that only has the id was ended"
        stranger.kill()
    assert not entry.folder.exists()


def test_records_of_an_earlier_start_of_this_machine_are_stale(
    folder: Path, sleeper: ProcessId
) -> None:
    before = kept_registry.here().model_copy(update={"boot": "before"})
    entry = record(folder, host=before, keeper=sleeper, server=sleeper)
    assert entry.state is KeptState.LOST
    assert kept_registry.clear(entry)
    assert alive(sleeper.pid), "what runs now has nothing to do with it"


@pytest.mark.parametrize("change", [{"name": "other", "boot": "x"}, {"pids": "pid:[7]"}])
def test_records_of_elsewhere_are_left_alone(
    folder: Path, sleeper: ProcessId, change: dict[str, str]
) -> None:
    host = Host.model_validate(kept_registry.here().model_dump() | change)
    assert record(folder, host=host, keeper=sleeper).state is KeptState.ELSEWHERE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "something else"}'])
def test_what_is_no_record_is_none(folder: Path, text: str) -> None:
    own = kept_registry.made(folder)
    (own / "record.json").write_text(text)
    assert found(own).state is KeptState.BOOTING
    os.utime(own, (1, 1))
    assert found(own).state is KeptState.UNREADABLE
    hold = found(own).hold
    assert hold.acquire()
    os.utime(own, (1, 1))
    assert found(own).state is KeptState.BOOTING
    hold.release()


@pytest.mark.parametrize(("mode", "said"), [(0o640, "is open to others (mode 0640)"), (0o600, "")])
def test_a_key_is_its_owners_alone(folder: Path, mode: int, said: str) -> None:
    entry = record(folder)
    path = entry.folder / "key"
    path.write_text("k")
    path.chmod(mode)
    if not said:
        assert kept_registry.key(entry) == "k"
        return
    with pytest.raises(UserError, match="its key is not safe") as error:
        kept_registry.key(entry)
    assert said in str(error.value)


def test_a_key_that_is_a_link_is_none(folder: Path, tmp_path: Path) -> None:
    entry = record(folder)
    (tmp_path / "elsewhere").write_text("k")
    (entry.folder / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        kept_registry.key(entry)


def test_a_folder_that_cannot_be_made_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="name another place in XDG_STATE_HOME"):
        kept_registry.opened()
