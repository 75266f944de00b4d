"""Ends the rest of a command whose guards were both killed at the same moment.

Only the calling process can do it then. It recognises the command's processes by a variable of
their environment and by their process group. The variable alone is not enough: setproctitle, which
vLLM uses, writes a process's title over the environment that /proc shows. The group alone is not
enough: a process may leave it (setsid(2)).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time

from pytest_vllm_gates.process.guard import parents, signal_all
from pytest_vllm_gates.process.shared_memory import Segments

MARK = "GATES_GUARDED"
"""The variable of every process of one command; each command has another value."""
ENDED_S = 5.0
POLL_S = 0.02


class Orphans:
    """One command's processes, and the files in /dev/shm that came since this was created."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._segments = Segments()
        self.group_line = b""
        """The inner guard's line: the id of the command's process group, a newline."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable that marks the command's processes."""
        return {MARK: self._token}

    def end(self) -> None:
        """SIGKILL every process of the command until there is none, and remove its files."""
        deadline = time.monotonic() + ENDED_S
        while (left := self._left()) and time.monotonic() < deadline:
            signal_all(left, signal.SIGSTOP)  # so that none forks after the look
            self._segments.look(left.copy, closely=True)
            signal_all(left, signal.SIGKILL)
            time.sleep(POLL_S)
        self._segments.remove()

    def _left(self) -> list[int]:
        """Return the ids of the command's live processes."""
        line, newline, _ = self.group_line.partition(b"\n")
        group = int(line) if newline else None
        marked = f"{MARK}={self._token}".encode()
        found = []
        for pid in parents():
            with contextlib.suppress(OSError):
                if os.getpgid(pid) == group or marked in _environment(pid):
                    found.append(pid)
        return found


def _environment(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as for all of /proc here
        return file.read().split(b"\0")
