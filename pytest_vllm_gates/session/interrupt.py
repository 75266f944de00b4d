"""Ctrl-C or SIGTERM in a run: it ends within seconds, and tests that were not judged cause HOLD.

CI, Kubernetes and Slurm end a job with SIGTERM. Without a handler Python ends at once, and the
results so far are lost.

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
"""Seconds after the first Ctrl-C in which another one changes nothing: the run is ending."""
SOCKETS = "pytest_vllm_gates.client.sockets"


PYTHONS_OWN: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""The default handler of each signal."""


class InterruptHandler:
    """The handler of SIGINT and SIGTERM while a run lasts."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._first: float | None = None
        self.removed = False

    def install(self) -> None:
        """Replace Python's own handler; another program's handler stays."""
        if connections := _connections():
            connections.begin()
        if threading.current_thread() is not threading.main_thread():
            return
        for number, pythons_own in PYTHONS_OWN.items():
            current = signal.getsignal(number)
            if current is pythons_own or _is_of_an_ended_run(current):
                signal.signal(number, self._interrupted)

    def remove(self) -> None:
        """Restore Python's own handler, unless the run was interrupted.

        Then pytest is about to end, and one more Ctrl-C would print a traceback.
        """
        self.removed = True
        for number, pythons_own in PYTHONS_OWN.items():
            if self._first is None and signal.getsignal(number) == self._interrupted:
                signal.signal(number, pythons_own)
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
    """Return this process's connections; None if no request was sent yet."""
    sockets = sys.modules.get(SOCKETS)
    return sockets.CONNECTIONS if sockets else None


def note(run: Run) -> None:
    """Record that the run was interrupted."""
    run.interrupted = True


def holds(run: Run) -> Iterator[str]:
    """Yield why an interrupted run cannot promote."""
    if run.interrupted:
        yield "the run was interrupted"
