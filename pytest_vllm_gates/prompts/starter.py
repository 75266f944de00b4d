"""The program that forks the processes in which prompts are rendered (`render_program.py`).

A process that imports transformers takes seconds to start. One starter per pytest process does
that while the server boots; the workers of all checkpoints are forked from it. It gets only those
environment variables that change how a program runs, so that a template that breaks out of its
sandbox finds no secret there. It ends with this process, however that ends.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.prompts import frames

PROGRAM = Path(__file__).with_name("render_program.py")
START_LIMIT_S = 120.0
END_LIMIT_S = 5.0
ANSWER_BYTES = 2**16
PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",  # a program that forks has one thread
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass
class Forked:
    """One worker, and the socket it serves."""

    starter: Starter
    pid: int
    connection: socket.socket

    def end(self) -> int:
        """Kill it; return its wait status, 0 if the starter is gone."""
        self.connection.close()
        return self.starter.end(self.pid)

    def abandon(self) -> None:
        """Mark it to be ended by the starter's next order; takes no lock.

        The garbage collector may call this at any time, also during an order.
        """
        self.connection.close()
        self.starter.abandoned.append(self.pid)


class Starter:
    """The program that forks workers."""

    def __init__(self) -> None:
        """Start it; it imports transformers meanwhile."""
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._ready = False
        self.abandoned: list[int] = []
        """Workers that are not used any more."""
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | SETTINGS
        self._control, theirs = socket.socketpair()
        handle = theirs.fileno()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", str(PROGRAM), str(handle), *filter(None, sys.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=env,
                    cwd="/",
                    pass_fds=[handle],
                    process_group=0,  # a terminal's Ctrl-C does not reach it
                )
        except OSError as error:
            self._control.close()
            raise _not_started(str(error)) from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fork(self) -> Forked:
        """Return a new worker; raises `UserError` if none can be started."""
        with self._lock:
            self._await_import()
            while self.abandoned:
                self._end(self.abandoned.pop())
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                answer = self._answer(START_LIMIT_S)
            except BaseException:
                ours.close()
                raise
        return Forked(self, answer["worker"], ours)

    def end(self, pid: int) -> int:
        """Kill a worker; return its wait status, 0 if the starter is gone."""
        with self._lock:
            return self._end(pid)

    def close(self) -> None:
        """End the program and all its workers."""
        self._control.close()
        if self.owner != os.getpid():
            return
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel kills its workers with it (PR_SET_PDEATHSIG)
            self._process.wait()

    def ended(self) -> bool:
        """Return whether it cannot be used any more."""
        return self._process.poll() is not None

    def _end(self, pid: int) -> int:
        try:
            self._control.sendall(json.dumps({"end": pid}).encode())
            status: int = self._answer(END_LIMIT_S)["status"]
        except (OSError, UserError):
            return 0
        return status

    def _await_import(self) -> None:
        if not self._ready:
            self._answer(START_LIMIT_S)
            self._ready = True

    def _answer(self, limit_s: float) -> dict[str, Any]:
        try:
            answer = frames.receive(self._control, ANSWER_BYTES, time.monotonic() + limit_s)
        except (OSError, ValueError, frames.TooLarge) as error:
            answer = {"error": f"no answer within {limit_s:g} s ({type(error).__name__})"}
        if not isinstance(answer, dict) or "error" in answer:
            reason = answer["error"] if answer else f"exit status {self._process.wait(END_LIMIT_S)}"
            raise _not_started(reason)
        return answer


def _not_started(reason: str) -> UserError:
    return UserError(
        f"the process that renders chat templates did not start: {reason}\n"
        f"try it: {sys.executable} -c 'import transformers, jinja2'"
    )


class _Shared:
    """The starter of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starter: Starter | None = None

    def get(self) -> Starter:
        """Return it; start it if there is none."""
        with self._lock:
            if self._starter and (self._starter.owner != os.getpid() or self._starter.ended()):
                self._starter.close()
                self._starter = None
            if self._starter is None:
                self._starter = Starter()
            return self._starter

    def close(self) -> None:
        """End it, if there is one."""
        with self._lock:
            if self._starter:
                self._starter.close()
                self._starter = None


@cache
def shared() -> _Shared:
    """Return the owner of this process's starter, which ends with it at the latest."""
    holder = _Shared()
    atexit.register(holder.close)
    return holder
