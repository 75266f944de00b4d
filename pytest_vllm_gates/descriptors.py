"""Waits for file descriptors. Standard library only: the guard of a process uses it, too.

select(2) supports only descriptors below 1,024, and a project's own tests may open more; poll(2)
supports all of them.
"""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def readable(handles: Iterable[int], timeout_s: float) -> list[int]:
    """Return the descriptors that become readable, or reach their end, within the time."""
    return _ready(handles, select.POLLIN | select.POLLPRI, timeout_s)


def writable(handle: int, timeout_s: float) -> bool:
    """Return whether a descriptor accepts bytes, or loses its reader, within the time."""
    return bool(_ready([handle], select.POLLOUT, timeout_s))


def _ready(handles: Iterable[int], events: int, timeout_s: float) -> list[int]:
    poll = select.poll()
    for handle in handles:
        poll.register(handle, events)
    return [handle for handle, _ in poll.poll(math.ceil(max(0.0, timeout_s) * 1000))]
