"""The process of a server that is, or will be, kept: its keeper has the guard's pipe open."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.files import WriteError, copy_whole
from pytest_vllm_gates.process import guard
from pytest_vllm_gates.process.process import DEFAULT_GRACE_S, HURRY_S, started
from pytest_vllm_gates.server.kept import listener, private
from pytest_vllm_gates.server.kept.keeper import ENDED, NOT_KEPT
from pytest_vllm_gates.server.kept.record import KeptRecord, ProcessId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.server.kept.hold import Hold

KEEPER = Path(__file__).with_name("keeper.py")
KEY = "key"
ENDED_BYTES = 4096
POLL_S = 0.02
TOLD_S = 2.0
"""The time in which a keeper writes down how its server ended."""
ENDED_BY_GUARD = 128 + signal.SIGTERM
"""The status of a server whose keeper was killed: its guard ended it, and recorded no status."""


class KeptProcess:
    """One command under a keeper. Its run has the lock until `stop` or `release`.

    The log grows in the server's own folder, which outlives a run and its report; `log` is a link
    to it, and at the end of the run a copy.
    """

    def __init__(self, folder: Path, hold: Hold, log: Path, original: Path) -> None:
        """Nothing runs yet; the lock `hold` is taken."""
        self.folder = folder
        self.log = log
        self.server = self.keeper = ProcessId(pid=0, started=0)
        self._hold = hold
        self.original = original
        self.problem = ""
        """Why the log could not be copied; empty if it was."""
        self._orders: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        log.symlink_to(original)

    @classmethod
    def start(
        cls, folder: Path, hold: Hold, argv: Sequence[str], *, env: Mapping[str, str], log: Path
    ) -> KeptProcess:
        """Start a command that ends with this process until it is kept."""
        (folder / ENDED).unlink(missing_ok=True)
        process = cls(folder, hold, log, folder / log.name)
        process._begin(argv, env)
        return process

    @classmethod
    def of(cls, folder: Path, hold: Hold, record: KeptRecord, log: Path) -> KeptProcess:
        """Return the process of a kept server whose lock is taken."""
        process = cls(folder, hold, log, record.log(folder))
        process.server, process.keeper = record.server, record.keeper
        return process

    def _begin(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        with (self.folder / "keeper.log").open("ab") as keeper_log:
            self._orders = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=keeper_log,
            )
        # In the pipe and not on a command line: the key is in it.
        ids = self._order(
            folder=str(self.folder),
            argv=list(argv),
            env=dict(env),
            log=str(self.original),
            cwd=str(Path.cwd()),
        )
        self._orders.wait()
        self.server, self.keeper = (
            ProcessId(pid=ids[name][0], started=ids[name][1] or 0) for name in ("server", "keeper")
        )

    def keep(self, record: KeptRecord, key: str) -> None:
        """Have the server stay up after this process.

        Raises `OSError` if its record cannot be written; the server then ends with this process.
        """
        private.write(self.folder / KEY, key)
        answer = self._order(keep=record.model_dump())
        if isinstance(answer, dict):
            raise OSError(answer[NOT_KEPT])
        self._hang_up()

    def tree(self) -> tuple[ProcessId, ...]:
        """Return the processes below the guard."""
        children = ((pid, started(pid)) for pid in guard.descendants(self.pid))
        return tuple(
            ProcessId(pid=pid, started=start) for pid, start in children if start is not None
        )

    def listens(self, port: int) -> bool:
        """Return whether a process of the tree listens on the port."""
        return listener.listens(port, guard.descendants(self.pid))

    @property
    def pid(self) -> int:
        """The guard's process id, the root of the tree."""
        return self.server.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        if self._status is None and not lives(self.server):
            self._status = self._read_status()
        return self._status

    def wait(self, timeout: float) -> int | None:
        """Wait at most `timeout` seconds for the end; return the status or None."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return status

    def stop(self, grace_s: float | None = None) -> int:
        """End the tree and its keeper; return the exit status."""
        grace_s = DEFAULT_GRACE_S if grace_s is None else grace_s
        if self.poll() is None:
            if self._orders:
                with contextlib.suppress(OSError, ValueError):
                    self._order(answered=False, stop=grace_s)
            else:
                send(self.keeper, signal.SIGTERM)
            if self.wait(grace_s + HURRY_S) is None:
                # The keeper hangs. Its guard notices its end; the others are known by their ids.
                processes = [self.server, *self.tree()]
                send(self.keeper, signal.SIGKILL)
                self.wait(grace_s + TOLD_S)
                for process_id in processes:
                    send(process_id, signal.SIGKILL)
        status = self.poll()
        self._settle()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._hold.release()
        return ENDED_BY_GUARD if status is None else status

    def release(self) -> None:
        """Leave the server to the next run; clear away one that has ended."""
        if self.poll() is not None:
            self.stop()
            return
        self._settle()
        self._hold.release()

    def _settle(self) -> None:
        """Replace the link, which soon leads nowhere, with a copy of the log."""
        self._hang_up()
        if self.log.is_symlink() and private.is_file(self.original):
            try:
                copy_whole(self.original, self.log)
            except WriteError as error:
                self.problem = str(error)
                with contextlib.suppress(OSError):
                    self.log.unlink()

    def _order(self, *, answered: bool = True, **order: Any) -> Any:
        """Send an order to the keeper and return its answer."""
        pipes = self._orders
        assert pipes and pipes.stdin and pipes.stdout  # noqa: S101 - until it is kept
        pipes.stdin.write(json.dumps(order).encode() + b"\n")
        pipes.stdin.flush()
        if not answered:
            return None
        answer = pipes.stdout.readline()
        if not answer:
            keeper_log = (self.folder / "keeper.log").read_text(encoding="utf-8", errors="replace")
            raise OSError(f"the keeper of the server failed:\n{keeper_log}")
        return json.loads(answer)

    def _hang_up(self) -> None:
        for pipe in (self._orders.stdin, self._orders.stdout) if self._orders else ():
            assert pipe  # noqa: S101 - it was requested
            with contextlib.suppress(OSError):
                pipe.close()
        self._orders = None

    def _read_status(self) -> int:
        """Return how the server ended, from the keeper's file."""
        deadline = time.monotonic() + TOLD_S
        while True:
            end = read_ending(self.folder)
            if end is not None or not lives(self.keeper) or time.monotonic() > deadline:
                end = end or read_ending(self.folder)
                return end[0] if end else ENDED_BY_GUARD
            time.sleep(POLL_S)


def read_ending(folder: Path) -> tuple[int, float] | None:
    """Return the exit status of a kept server and the time of its end, in seconds since 1970."""
    try:
        record = json.loads(private.read(folder / ENDED, ENDED_BYTES))
        status, at = int(record["status"]), float(record["at"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return (status, at) if math.isfinite(at) else None


def lives(process_id: ProcessId) -> bool:
    """Return whether this very process runs and belongs to this user."""
    pid = process_id.pid
    return pid > 0 and started(pid) == process_id.started and _user(pid) == os.geteuid()


def send(process_id: ProcessId, number: int) -> None:
    """Send a signal to this very process, if it still runs and belongs to this user."""
    if process_id.pid <= 0:
        return
    try:
        # Refers to one process: after a look, the id may be given to another.
        handle = os.pidfd_open(process_id.pid)
    except ProcessLookupError:
        return
    except OSError:  # Linux before 5.3, and sandboxes
        if lives(process_id):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id.pid, number)
        return
    try:
        if lives(process_id):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _user(pid: int) -> int | None:
    """Return the effective user of a process; None if the process does not exist."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    words = next(line for line in status.splitlines() if line.startswith("Uid:")).split()
    return int(words[2])  # Uid: real, effective, saved, of the file system; proc(5)
