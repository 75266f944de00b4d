"""Ctrl-C in a run: the run ends within seconds, and what was not judged holds the verdict.

The server does not get the signal: `process/guard.py` shields it, and the run ends it. A test waits
in threads for answers that take minutes; the handler gives up all of them before Python raises
`KeyboardInterrupt`, so that no queue of requests is worked off first.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.sockets import Connections
    from pytest_vllm_gates.session.run import Run

QUIET_S = 10.0
"""How long after the first Ctrl-C another one changes nothing: the run is ending."""
SOCKETS = "pytest_vllm_gates.client.sockets"


class InterruptHandler:
    """The handler of SIGINT while a run lasts."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._first: float | None = None
        self.removed = False

    def install(self) -> None:
        """Take Python's own handler's place; another program's handler stays."""
        if connections := _connections():
            connections.begin()
        if threading.current_thread() is not threading.main_thread():
            return
        current = signal.getsignal(signal.SIGINT)
        if current is signal.default_int_handler or _is_of_an_ended_run(current):
            signal.signal(signal.SIGINT, self._interrupted)

    def remove(self) -> None:
        """Put Python's own handler back, unless the run was interrupted.

        Then pytest is about to end, and one more Ctrl-C would show where it is.
        """
        self.removed = True
        if self._first is None and signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if connections := _connections():
            connections.begin()

    def _interrupted(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._first is not None and now - self._first < QUIET_S:
            return
        self._first = now
        note(self._run)
        if connections := _connections():
            connections.end()
        signal.default_int_handler(number, frame)


def _is_of_an_ended_run(handler: object) -> bool:
    owner = getattr(handler, "__self__", None)
    return isinstance(owner, InterruptHandler) and owner.removed


def _connections() -> Connections | None:
    """Return this process's connections; None where nothing was asked yet."""
    sockets = sys.modules.get(SOCKETS)
    return sockets.CONNECTIONS if sockets else None


def note(run: Run) -> None:
    """Remember that the run was cut short."""
    run.interrupted = True


def holds(run: Run) -> Iterator[str]:
    """Yield why an interrupted run cannot promote."""
    if run.interrupted:
        yield "the run was interrupted"
