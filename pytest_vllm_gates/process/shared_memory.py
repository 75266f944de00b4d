"""Files in /dev/shm that a killed server leaves: found while it runs, removed after its end.

A killed process removes nothing: Python's shared memory (psm_*), NCCL's (nccl-*), vLLM's caches
(vllm_*, VLLM_*) stay, and take memory until the machine restarts. The kernel does not record
which process created a file. So a file counts as the server's if it was not there before the
server, belongs to this user, has a name of those kinds, and a process of the server had it open
or mapped. A file that came while the server was ending counts, too, if every process that could
use it is visible. A file that a living process has open or mapped is not removed.

Standard library only: `guard.py` imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux has shared memory
PROCESSES = Path("/proc")
# multiprocessing.shared_memory and its semaphores; NCCL; torch's file_system sharing (torch_PID_*);
# vllm/v1/kv_offload, vllm/distributed/ec_transfer, vllm/envs.py (VLLM_OBJECT_STORAGE_SHM_BUFFER).
KINDS = re.compile(r"psm_|sem\.mp-|nccl-|torch_\d+_|vllm_|VLLM_")
IN_MOVED_TO, IN_CREATE = 0x80, 0x100  # linux/inotify.h
EVENT_BYTES = 2**16
TICK_NS = 20_000_000
LOOKS, APART_S = 2, 0.04
"""A file that no process of the running server uses at this many looks, so far apart, is another
process's. At the first look its maker may have been killed, and the server is about to end."""
# The first namespaces of a machine (include/linux/proc_ns.h): all processes are visible there.
FIRST_PIDS, FIRST_IPC = "pid:[4026531836]", "ipc:[4026531839]"


class Segment(NamedTuple):
    """One file; with its number, because a name is reused."""

    name: str
    inode: int


class Segments:
    """The files that came while a server ran.

    `report` is a pipe to the process that takes over when this one is killed.
    """

    def __init__(self, report: int | None = None) -> None:
        """Record the files that exist now."""
        self._before = _present()
        self._misses: dict[Segment, int] = {}
        self._missed_at: dict[Segment, float] = {}
        self._ours: set[Segment] = set()
        self._changed: int | None = None
        self.report = report
        self.events: int | None = None

    def watch(self) -> None:
        """Have the kernel report new files: `events` is readable when one has come (inotify(7))."""
        with contextlib.suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if events >= 0:
                libc.inotify_add_watch(events, os.fsencode(FOLDER), IN_MOVED_TO | IN_CREATE)
                self.events = events

    def look(self, processes: Callable[[], Iterable[int]], *, closely: bool = False) -> None:
        """Look for new files and for whether one of these processes has them.

        Does nothing while the folder does not change. The last looks, while the processes are
        ended, are `closely`: a file first seen then may belong to a process that is gone.
        """
        open_questions = any(misses < LOOKS for misses in self._misses.values())
        if not (self._has_changed() or open_questions or closely):
            return
        present = _present()
        for gone in self._misses.keys() - present:
            del self._misses[gone]
        new = present - self._before - self._ours
        unknown = {file for file in new if closely or self._misses.get(file, 0) < LOOKS}
        if not unknown:
            return
        used = _used(processes(), unknown)
        self._ours |= used
        for file in used:
            self._misses.pop(file, None)
            self._tell(file, ours=True)
        if closely:
            return
        now = time.monotonic()
        for file in unknown - used:
            if now - self._missed_at.get(file, 0.0) >= APART_S:
                self._missed_at[file] = now
                self._misses[file] = self._misses.get(file, 0) + 1
                self._tell(file, ours=False)

    def _has_changed(self) -> bool:
        with contextlib.suppress(OSError):
            if self.events is not None and os.read(self.events, EVENT_BYTES):
                return True
        changed = _changed()
        if changed == self._changed:
            return False
        # Two changes within a tick of the kernel's clock have one time.
        settled = changed is not None and time.time_ns() - changed > TICK_NS
        self._changed = changed if settled else None
        return True

    def _tell(self, file: Segment, *, ours: bool) -> None:
        if self.report is not None:
            line = json.dumps([*file, ours]) + "\n"
            with contextlib.suppress(OSError):
                os.write(self.report, line.encode("ascii"))

    def learn(self, report: int) -> None:
        """Take over what another process has reported, up to the end of its pipe."""
        with os.fdopen(report, "rb") as pipe:
            for line in pipe:
                with contextlib.suppress(ValueError):  # cut off
                    name, inode, ours = json.loads(line)
                    file = Segment(name, inode)
                    if ours:
                        self._ours.add(file)
                    else:
                        self._misses[file] = self._misses.get(file, 0) + 1

    def remove(self) -> None:
        """Remove the server's files; call it after the end of all its processes."""
        new = _present() - self._before
        left = new & self._ours
        if _sees_every_user():
            left |= {file for file in new if self._misses.get(file, 0) < LOOKS}
        if not left:
            return
        processes = [int(path.name) for path in PROCESSES.iterdir() if path.name.isdigit()]
        for file in left - _used(processes, left):
            with contextlib.suppress(OSError):
                if (FOLDER / file.name).lstat().st_ino == file.inode:
                    (FOLDER / file.name).unlink()


def _changed() -> int | None:
    try:
        return FOLDER.stat().st_mtime_ns
    except OSError:
        return None


def _present() -> set[Segment]:
    """Return this user's files of the known kinds."""
    present = set()
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            if not KINDS.match(entry.name):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and status.st_uid == os.geteuid():
                    present.add(Segment(entry.name, status.st_ino))
    return present


def _used(processes: Iterable[int], files: set[Segment]) -> set[Segment]:
    """Return those of the files that one of the processes has open or mapped."""
    by_inode = {file.inode: file for file in files}
    device = FOLDER.stat().st_dev
    used: set[Segment] = set()
    for pid in processes:
        found = {
            by_inode[inode]
            for inode in (*_open(pid, device), *_mapped(pid, device))
            if inode in by_inode
        }
        used |= found
        if len(used) == len(files):
            break
    return used


def _open(pid: int, device: int) -> Iterable[int]:
    """Yield the inodes of the folder's files that a process has open."""
    try:
        handles = [*(PROCESSES / str(pid) / "fd").iterdir()]
    except OSError:
        return
    for handle in handles:
        with contextlib.suppress(OSError):
            status = handle.stat()
            if status.st_dev == device:
                yield status.st_ino


def _mapped(pid: int, device: int) -> Iterable[int]:
    """Yield the inodes of the folder's files that a process has mapped."""
    number = f"{os.major(device):02x}:{os.minor(device):02x}"
    try:
        text = (PROCESSES / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        if number in line:
            fields = line.split(maxsplit=5)
            if fields[3] == number:
                yield int(fields[4])


def _sees_every_user() -> bool:
    """Return whether every process that can use the folder is visible from here.

    In a container that shares the host's IPC namespace, invisible processes use it.
    """
    try:
        pids, ipc = (str((PROCESSES / "self/ns" / name).readlink()) for name in ("pid", "ipc"))
    except OSError:
        return False
    return pids == FIRST_PIDS or ipc != FIRST_IPC
