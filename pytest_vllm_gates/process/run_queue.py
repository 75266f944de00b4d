"""Measures how long processes were ready to run while no processor was free for them.

Linux keeps both for each thread: /proc/PID/task/TID/schedstat has the nanoseconds on a processor
and those waiting for one (kernel documentation, scheduler/sched-stats).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PROCESSES = Path("/proc")
HARDLY = 0.05
"""Processes that were ready to run for less than this share of the time wait for something else."""


class RunQueue:
    """How much of the time that processes were ready to run they waited for a processor."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        """Begin now; `processes` returns the ids of the processes that run at that time."""
        self._processes = processes
        self.restart()

    def restart(self) -> None:
        """Restart the measurement."""
        self._at = time.monotonic()
        self._before = _times(self._processes())

    def waited(self) -> float | None:
        """Return the share since the beginning, of the threads that exist now.

        None if the kernel does not report it, or they were hardly ready to run.
        """
        now = _times(self._processes())
        ran = waited = 0
        for thread, times in now.items():
            ran_before, waited_before = self._before.get(thread, (0, 0))
            ran += times[0] - ran_before
            waited += times[1] - waited_before
        ready_s = (ran + waited) / 1e9
        if ready_s <= HARDLY * (time.monotonic() - self._at):
            return None
        return waited / (ran + waited)


def _times(processes: Iterable[int]) -> dict[str, tuple[int, int]]:
    """Return nanoseconds on a processor and waiting for one, by the thread's folder."""
    times = {}
    for pid in processes:
        for file in (PROCESSES / str(pid) / "task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                ran, waited, _slices = map(int, file.read_text(encoding="ascii").split())
                times[str(file.parent)] = (ran, waited)
    return times
