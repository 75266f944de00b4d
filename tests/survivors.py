"""Checks whether processes live, and waits for conditions."""

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
    ended = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state == "Z" and int(parent) == os.getpid():
                ended.add(int(process.name))
    return ended


def until(condition: Callable[[], object], message: str = "it never happened") -> None:
    """Wait until `condition` is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def none_of(pids: Iterable[int]) -> bool:
    """Return whether none of the processes lives."""
    return not any(alive(pid) for pid in pids)
