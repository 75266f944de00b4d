"""The folder of kept servers: its records, their states, and its privacy."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path
from pydantic import ValidationError

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.process.process import HURRY_S
from pytest_vllm_gates.server.kept import private
from pytest_vllm_gates.server.kept.hold import Hold
from pytest_vllm_gates.server.kept.keeper import RECORD
from pytest_vllm_gates.server.kept.process import KEY, lives, read_ending, send
from pytest_vllm_gates.server.kept.record import Host, KeptRecord, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PIDS = Path("/proc/self/ns/pid")
YOUNG_S = 5.0
"""A folder that was created just now has no lock yet."""
STOP_POLL_S = 0.05
FOLDER_NAME = re.compile(r"[0-9a-f]{6}")
KEY_BYTES = 4096


class KeptState(StrEnum):
    """The state of a kept server."""

    IDLE = "idle"
    IN_USE = "in use"
    DIED = "died"
    LOST = "its keeper is gone"
    ELSEWHERE = "on another machine"
    BOOTING = "booting"
    UNREADABLE = "no record"
    UNSAFE = "not this user's alone"


@dataclass(frozen=True)
class KeptEntry:
    """One folder of a kept server, and the server's state now."""

    folder: Path
    state: KeptState
    record: KeptRecord | None = None

    @property
    def name(self) -> str:
        """Its name: the name of its folder."""
        return self.folder.name

    @property
    def hold(self) -> Hold:
        """Its lock."""
        return Hold(self.folder)


def root() -> Path:
    """Return the folder of this user's kept servers; it may be missing."""
    return user_state_path("pytest-vllm-gates") / "servers"


def open_root() -> Path:
    """Return the folder of kept servers; create a missing one.

    Raises `UserError` if others can access it.
    """
    folder = root()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"no folder for kept servers: {error.strerror}: {folder}\n"
            "set XDG_STATE_HOME to another folder, or leave out --keep-server"
        ) from error
    return existing_root()


def existing_root() -> Path:
    """Return the folder of kept servers, which may be missing.

    Raises `UserError` if others can access it: its contents cannot be trusted then.
    """
    folder = root()
    if problem := open_to_others(folder):
        raise UserError(
            f"{folder} {problem}: the keys of kept servers would not be safe there\n"
            f"run chmod 700 {folder}, or set XDG_STATE_HOME to another folder"
        )
    return folder


def create_folder(folder: Path) -> Path:
    """Return a new server's own folder in the folder of kept servers."""
    server_folder = folder / secrets.token_hex(3)
    server_folder.mkdir(mode=0o700)
    return server_folder


def open_to_others(path: Path) -> str:
    """Return why a file or folder is not private to its user; '' if it is private or missing."""
    try:
        return private.problem(path.lstat())
    except FileNotFoundError:
        return ""


def key(kept_entry: KeptEntry) -> str:
    """Return a kept server's key; raises `UserError` if others can read it, or nobody can."""
    path = kept_entry.folder / KEY
    try:
        for file in (kept_entry.folder, path):
            if problem := open_to_others(file):
                raise UserError(f"its key is not safe: {file} {problem}")
        return private.read(path, KEY_BYTES)
    except OSError as error:
        raise UserError(f"its key cannot be read: {error.strerror or error}: {path}") from error


def log_of(kept_entry: KeptEntry) -> Path | None:
    """Return a kept server's log, if there is one."""
    log = kept_entry.record.log(kept_entry.folder) if kept_entry.record else None
    return log if log and private.is_file(log) else None


def this_host() -> Host:
    """Return the scope in which this process's process ids are valid."""
    return Host(
        name=os.uname().nodename,
        boot=BOOT_ID.read_text(encoding="ascii").strip(),
        pids=str(PIDS.readlink()),
    )


def entries(folder: Path) -> Iterator[KeptEntry]:
    """Yield the servers in the folder of kept servers, the oldest first.

    A folder with a name that is not a server's is left out; one that others can access is
    `UNSAFE`, and nothing in it is read.
    """
    if not folder.is_dir() or open_to_others(folder):
        return
    by_age = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it ends just now
            if FOLDER_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                by_age.append((path.lstat().st_mtime, path))
    for _, path in sorted(by_age):
        with contextlib.suppress(FileNotFoundError):
            yield _entry(path)


def _entry(folder: Path) -> KeptEntry:
    if private.problem(folder.lstat()):
        return KeptEntry(folder, KeptState.UNSAFE)
    held = Hold(folder).held()
    record = _record(folder)
    if record is None:
        young = time.time() - folder.lstat().st_mtime < YOUNG_S
        return KeptEntry(folder, KeptState.BOOTING if held or young else KeptState.UNREADABLE)
    host = this_host()
    if record.host != host:
        # The same machine after a restart: no process is left. Another machine knows its own.
        rebooted = record.host.name == host.name and record.host.boot != host.boot
        return KeptEntry(folder, KeptState.LOST if rebooted else KeptState.ELSEWHERE, record)
    if read_ending(folder):
        return KeptEntry(folder, KeptState.DIED, record)
    if not lives(record.keeper):
        return KeptEntry(folder, KeptState.LOST, record)
    return KeptEntry(folder, KeptState.IN_USE if held else KeptState.IDLE, record)


def _record(folder: Path) -> KeptRecord | None:
    """Return a server's record; None if there is none that can be trusted."""
    try:
        record = KeptRecord.model_validate_json(private.read(folder / RECORD))
        _ = record.booted_at
    except (OSError, ValueError, ValidationError, UserError):
        return None
    return record if record.name == folder.name else None


def clear(kept_entry: KeptEntry) -> bool:
    """End the remaining processes of a server without a keeper, and remove its folder.

    False if another process uses the folder. Ends only this user's processes that the record names,
    and only if their start is the recorded one.
    """
    if kept_entry.state is KeptState.UNSAFE:
        return False
    hold = kept_entry.hold
    if not hold.acquire():
        return False
    if kept_entry.record and kept_entry.record.host == this_host():
        for process_id in (kept_entry.record.server, *kept_entry.record.tree):
            send(process_id, signal.SIGKILL)
    shutil.rmtree(kept_entry.folder, ignore_errors=True)
    hold.release()
    return True


def stop(kept_entry: KeptEntry, *, force: bool = False) -> bool:
    """End a kept server; False if a run uses it, unless by `force`."""
    record, hold = kept_entry.record, kept_entry.hold
    if record is None or kept_entry.state not in (KeptState.IDLE, KeptState.IN_USE):
        return clear(kept_entry)
    acquired = hold.acquire()
    if not acquired and not force:
        return False
    send(record.keeper, signal.SIGTERM)
    deadline = time.monotonic() + HURRY_S
    while lives(record.keeper) and time.monotonic() < deadline:
        time.sleep(STOP_POLL_S)
    if lives(record.keeper):
        send(record.keeper, signal.SIGKILL)
    for process_id in (record.server, *record.tree):
        send(process_id, signal.SIGKILL)
    if acquired:  # else the run that uses it copies its log and clears it away
        shutil.rmtree(kept_entry.folder, ignore_errors=True)
    hold.release()
    return True


def give_way() -> Iterator[str]:
    """End this machine's idle kept servers, for a boot that has no memory beside them."""
    for kept_entry in [*entries(root())]:
        if kept_entry.state is KeptState.IDLE and kept_entry.record and stop(kept_entry):
            family, lane = map(shown, (kept_entry.record.family, kept_entry.record.lane))
            yield f"{kept_entry.name}, {family} on lane {lane}"
