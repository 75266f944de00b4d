"""Which processes live, and waiting for what is to happen."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LIMIT_S = 60.0


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def zombies() -> set[int]:
    """Return this process's children that ended and were not waited for."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state == "Z" and int(parent) == os.getpid():
                found.add(int(entry.name))
    return found


def until(what: Callable[[], object], said: str = "it never happened") -> None:
    """Wait until `what` is true."""
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, said
        time.sleep(0.01)


def none_of(pids: Iterable[int]) -> bool:
    """Return whether none of the processes lives."""
    return not any(alive(pid) for pid in pids)
