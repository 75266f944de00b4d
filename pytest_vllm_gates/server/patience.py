"""Decides when a boot has taken too long, and whether a busy machine took the time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.process.run_queue import RunQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_vllm_gates.server.log import LogWatch

STARVED = 0.5
"""A server that waited for a processor for this share of the time that it was ready to run is
slow because of other processes on its machine."""


@dataclass(frozen=True)
class BootLimits:
    """Seconds a boot may take in all, and seconds its log may stay silent."""

    boot_s: float
    stall_s: float


@dataclass(frozen=True)
class TooLong:
    """The limit that was exceeded."""

    what: str
    starved: bool
    """Whether other processes kept the server from running."""


class Patience:
    """The limits of a boot that begins now; `processes` returns the ids of the server's."""

    def __init__(
        self, limits: BootLimits, watch: LogWatch, processes: Callable[[], Iterable[int]]
    ) -> None:
        self._limits = limits
        self._watch = watch
        self._began = time.monotonic()
        self._since_start, self._since_silent = RunQueue(processes), RunQueue(processes)
        self._silent_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds since the boot began."""
        return time.monotonic() - self._began

    def too_long(self) -> TooLong | None:
        """Return the limit that was exceeded; None while there is none."""
        silent_s = self._watch.silent_s()
        if silent_s < self._silent_s:
            self._since_silent.restart()
        self._silent_s = silent_s
        if silent_s > self._limits.stall_s:
            what = f"the server made no progress for {silent_s:.0f} s (--stall-timeout)"
            return _too_long(what, self._since_silent)
        if self.waited_s > self._limits.boot_s:
            what = f"the server was not ready after {self.waited_s:.0f} s (--boot-timeout)"
            return _too_long(what, self._since_start)
        return None


def _too_long(what: str, run_queue: RunQueue) -> TooLong:
    waited = run_queue.waited()
    if waited is None or waited < STARVED:
        return TooLong(what, starved=False)
    return TooLong(
        f"{what}: for {waited:.0%} of the time that it was ready to run no processor was free; "
        f"other processes keep this machine busy (load {os.getloadavg()[0]:.1f})",
        starved=True,
    )
