"""Waits for file descriptors. Standard library only: the guard of a process uses it, too.

select(2) knows descriptors below 1,024 alone, and a project's own tests may hold more than that;
poll(2) knows them all.
"""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def readable(handles: Iterable[int], timeout_s: float) -> list[int]:
    """Return which of the descriptors can be read, or are at their end, within the time."""
    return _ready(handles, select.POLLIN | select.POLLPRI, timeout_s)


def writable(handle: int, timeout_s: float) -> bool:
    """Return whether a descriptor takes bytes, or has no reader any more, within the time."""
    return bool(_ready([handle], select.POLLOUT, timeout_s))


def _ready(handles: Iterable[int], events: int, timeout_s: float) -> list[int]:
    poll = select.poll()
    for handle in handles:
        poll.register(handle, events)
    return [handle for handle, _ in poll.poll(math.ceil(max(0.0, timeout_s) * 1000))]
