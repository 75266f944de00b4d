"""Runs processes whose whole tree ends with this one, and pauses or inspects processes.

`paused` stops a server's processes (SIGSTOP) while another is measured on the same machine. An
idle server uses processor time: a worker of vLLM polls its queue for a second after its last step
and yields in between (`sched_yield`), and two workers that are bound to one core switch four
million times in a minute.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_vllm_gates.descriptors import readable
from pytest_vllm_gates.process.guard import descendants, parents, signal_all
from pytest_vllm_gates.process.orphans import Orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

GUARD = Path(__file__).with_name("guard.py")
DEFAULT_GRACE_S = 2.0

# The grace period of the tree after this process was killed: five seconds later nothing may be
# left, however busy the machine, and no process waits for the server's shutdown.
ORPHANED_GRACE_S = 0.5
HURRY_S = 30.0
POLL_S = 0.05

# A killed process is gone when the kernel has freed its memory: many seconds for a process of
# some gigabytes on a machine short of memory, or with a busy driver.
DYING_S = 60.0
PF_EXITING = 0x4  # linux/sched.h
RUNNING, DYING = "running", "killed, but not gone"


class Process(Protocol):
    """A command that runs under a guard; any process may have the guard's pipe."""

    log: Path

    @property
    def pid(self) -> int:
        """The guard's process id, the root of the tree."""

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""

    def wait(self, timeout: float) -> int | None:
        """Wait at most `timeout` seconds for the end; return the status or None."""

    def stop(self, grace_s: float | None = None) -> int:
        """End the tree; return the exit status."""


class GuardedProcess:
    """A command under the guard (`guard.py`), its output appended to a log file.

    The guard's exit status is the command's: 127 when it could not be started, 128 + N when
    signal N ended it. A status is final only when nothing of the tree is left.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        cwd: Path | None = None,
        grace_s: float = DEFAULT_GRACE_S,
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        orphaned_s = min(grace_s, ORPHANED_GRACE_S)
        # Only the two guards have the other end open: it closes with the last of them.
        self._guards: int | None
        self._guards, held = os.pipe()
        self._orphans = Orphans()
        guard = [sys.executable, "-I", "-S", str(GUARD), str(orphaned_s), str(held)]
        try:
            with log.open("ab") as output:
                self._guard = subprocess.Popen(
                    [*guard, *argv],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**env, **self._orphans.environment},
                    cwd=cwd,
                    pass_fds=[held],
                    process_group=0,
                )
        except BaseException:
            self._close_guards()
            raise
        finally:
            os.close(held)
        self._grace_s = grace_s
        self._killed_at: float | None = None

    @property
    def pid(self) -> int:
        """The guard's process id, the root of the tree."""
        return self._guard.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        status = self._guard.poll()
        if status is not None:
            self._hang_up()
            if not self._guards_ended(0):
                return None
        return status

    def wait(self, timeout: float) -> int | None:
        """Wait at most `timeout` seconds for the end; return the status or None."""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(timeout)
            self._hang_up()
            self._guards_ended(max(0.0, deadline - time.monotonic()))
        return self.poll()

    def stop(self, grace_s: float | None = None) -> int:
        """End the tree: SIGTERM, `grace_s` seconds, SIGKILL. Return the exit status."""
        grace_s = self._grace_s if grace_s is None else grace_s
        self._hang_up(f"{grace_s}\n")
        status = self.wait(grace_s + HURRY_S)
        if status is None:
            # The guard itself hangs. Its tree, the inner guard included, is ended here.
            tree = descendants(self.pid)
            self._guard.kill()
            signal_all(tree, signal.SIGKILL)
            status = self._guard.wait()
            self._close_guards()
        return status

    def _guards_ended(self, timeout: float) -> bool:
        """Return whether the inner guard, too, is gone: it ends the tree of a killed outer one.

        If both were killed, the tree is ended here.
        """
        if self._guards is None:
            return True
        self._killed_at = self._killed_at or time.monotonic()
        deadline = time.monotonic() + timeout
        ended = False
        while not ended and readable([self._guards], deadline - time.monotonic()):
            piece = os.read(self._guards, 64)
            self._orphans.group_line += piece
            ended = not piece
        if ended or time.monotonic() - self._killed_at > HURRY_S:
            self._close_guards()
            if (self._guard.poll() or 0) < 0:
                self._orphans.end()
        return self._guards is None

    def _close_guards(self) -> None:
        if self._guards is not None:
            os.close(self._guards)
            self._guards = None

    def _hang_up(self, last_words: str = "") -> None:
        """Close the pipe, which makes the guard stop the command."""
        pipe = self._guard.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(last_words.encode())
                pipe.flush()
            with contextlib.suppress(OSError):
                pipe.close()


def started(pid: int) -> int | None:
    """Return when a live process started, in clock ticks since the machine did; None without one.

    A process id is reused; with its start it names one process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def still_running(
    pids: Sequence[int], within_s: float, dying_within_s: float = DYING_S
) -> dict[int, str]:
    """Return which of the processes still exist, with the state of each.

    Returns at once if none does, else after `within_s` seconds, or `dying_within_s` if all that
    are left were killed and only the kernel has not removed them.
    """
    begun = time.monotonic()
    while left := {pid: _doing(pid) for pid in sorted(set(pids) & parents().keys())}:
        waited = time.monotonic() - begun
        dying = all(state == DYING for state in left.values())
        if waited >= (dying_within_s if dying else within_s):
            break
        time.sleep(POLL_S)
    return left


def _doing(pid: int) -> str:
    """Return whether a process runs, or was killed and not yet removed by the kernel."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return DYING
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    exiting = int(stat.rpartition(")")[2].split()[6]) & PF_EXITING
    return DYING if exiting or pending >> (signal.SIGKILL - 1) & 1 else RUNNING


@contextlib.contextmanager
def paused(processes: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Pause these processes while the block lasts."""
    pids = [*processes()]
    try:
        signal_all(pids, signal.SIGSTOP)
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def open_handles(processes: Iterable[int]) -> int | None:
    """Return how many files and sockets some processes have open; None if none can be seen."""
    counts = []
    for pid in processes:
        with contextlib.suppress(OSError):
            counts.append(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    return sum(counts) if counts else None


def resident_bytes(processes: Iterable[int]) -> int | None:
    """Return the resident memory of some processes together, shared pages counted for each."""
    total = 0
    for pid in processes:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total or None
