"""Runs one command and ends its whole process tree when the calling process ends.

A separate program, standard library only (`python -I -S guard.py SECONDS TOLD COMMAND…`). TOLD is
the descriptor to which it writes the id of the command's process group. Its standard input is a
pipe whose other end only the calling process has open: end of file means "stop", whether the caller
closed it or was killed with SIGKILL. It exits as the command did (128 + signal for a signal).

The command's output goes through the guard, which redacts the secrets of the environment and of
the arguments: they never reach the log.

The guard is two processes, so that SIGKILL to either of them leaves nothing behind, even when the
caller is killed with it. The outer guard, which the caller starts, forks the inner one and waits.
The inner guard starts the command, passes its output on and ends its tree. Both are "subreapers"
(prctl(2), Linux): a grandchild that daemonises, or that loses its parents, is handed to the inner
guard, or to the outer one if that is gone, and so is found. When the inner guard is killed, the
outer one ends what is left; when the outer one is killed, a pipe from it closes and the inner one
ends the tree. They are in different process groups, and a terminal's Ctrl-C reaches neither.
Neither has an own session: Linux shares the machine between sessions (autogroup, sched(7)), and on
two cores a busy server in another session kept its clients from running for seconds.

The guard that ends the tree removes the files that it left in /dev/shm (`shared_memory.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if __name__ == "__main__":
    # At the end: no module beside the package may replace one of the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from pytest_vllm_gates.descriptors import readable
from pytest_vllm_gates.process.output import pass_on
from pytest_vllm_gates.process.shared_memory import Segments

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
REAPED_S = 3.0  # for killed processes to leave the kernel's tables
PASSED_ON_S = 5.0  # for the last output to be written
POLL_S = 0.05
THREADS = 17  # num_threads in proc(5)'s stat, counted from the state
LINGER_S = 1.0  # for an orphaned worker to end by itself after its parent


def prctl(option: int, value: int) -> None:
    """Call prctl(2) if it exists; elsewhere only the process group is ended."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Return the parent's id of every live process by its own, zombies left out.

    A process whose first thread has ended and others have not is a zombie, too, for the kernel: it
    is alive, and a killed one with much memory stays so for seconds, with its children below it.
    """
    parent_of = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                # "pid (comm) state ppid": the command may contain spaces and brackets
                fields = stat.read().rpartition(")")[2].split()
            if fields[0] != "Z" or int(fields[THREADS]) > 1:
                parent_of[int(name)] = int(fields[1])
    return parent_of


def descendants(root: int) -> list[int]:
    """Return the ids of every live process below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    below: list[int] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), ()):
            below.append(child)
            queue.append(child)
    return below


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_tree(child: subprocess.Popen[bytes], grace_s: float, segments: Segments) -> None:
    """SIGTERM the command, give it `grace_s` seconds, then SIGKILL the rest of its tree."""
    segments.look(below, closely=True)
    if child.poll() is None and grace_s > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        signal_all(below(), signal.SIGCONT)  # so that a paused process gets it, too
        deadline = time.monotonic() + grace_s
        while child.poll() is None and time.monotonic() < deadline:
            segments.look(below)
            time.sleep(0.02)
    deadline = time.monotonic() + (LINGER_S if child.poll() is not None else 0)
    while below() and time.monotonic() < deadline:
        time.sleep(0.02)
    kill_tree(segments, child.poll)
    child.wait()
    reap()
    segments.remove()


def below() -> list[int]:
    """Return the ids of every live process below this one."""
    return descendants(os.getpid())


def kill_tree(segments: Segments, reaped: Callable[[], object] = lambda: None) -> None:
    """SIGKILL every process below this one, until there is none."""
    # A process killed here may have forked a moment before: look until nothing is found.
    while left := below():
        signal_all(left, signal.SIGSTOP)  # so that none creates a file after the look
        segments.look(left.copy, closely=True)
        signal_all(left, signal.SIGKILL)
        reaped()
        time.sleep(0.02)


def reap() -> None:
    """Wait for the orphans that were handed to this process."""
    # /proc shows a process as dead when its first thread has ended, shortly before the last one has
    # and it can be reaped.
    deadline = time.monotonic() + REAPED_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.02)


def main() -> int:
    """Run the command named on the command line until it ends or standard input closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    segments = Segments()
    outer_lives, hold = os.pipe()
    reported, report = os.pipe()
    inner = os.fork()
    if inner:
        os.close(outer_lives)
        os.close(report)
        return watch(inner, reported, segments)
    os.close(hold)
    os.close(reported)
    os.setpgid(0, 0)
    os.set_blocking(report, False)
    segments.report = report
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # fork(2) does not pass it on
    return run(outer_lives, segments)


def watch(inner: int, reported: int, segments: Segments) -> int:
    """Wait for the inner guard; if it was killed, end the rest of the tree in its place."""
    _, status = os.waitpid(inner, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 or below():
        segments.learn(reported)
        kill_tree(segments)
        reap()
        segments.remove()
    return 128 - code if code < 0 else code


def run(outer_lives: int, segments: Segments) -> int:
    """Start the command and end its tree when it, or the outer guard, has ended."""
    grace_s = float(sys.argv[1])
    told = int(sys.argv[2])
    command = sys.argv[3:]
    guard = os.getpid()

    def in_child() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=in_child,  # noqa: PLW1509 - one thread
        )
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    with contextlib.suppress(OSError):  # the caller is gone
        os.write(told, f"{child.pid}\n".encode("ascii"))
    assert child.stdout is not None  # noqa: S101 - requested above
    passing_on = threading.Thread(target=pass_on, args=(child.stdout.fileno(), 1), daemon=True)
    passing_on.start()
    segments.watch()
    inputs = [0, outer_lives, *([] if segments.events is None else [segments.events])]
    while child.poll() is None:
        ready = readable(inputs, POLL_S)
        segments.look(below)
        if outer_lives in ready:
            break
        if 0 in ready:
            request = os.read(0, 64)
            # The last line written is the grace period; a bare end of file keeps the default.
            if request.strip():
                grace_s = float(request.split()[-1])
            else:
                break
    end_tree(child, grace_s, segments)
    passing_on.join(PASSED_ON_S)
    return 128 - child.returncode if child.returncode < 0 else child.returncode


if __name__ == "__main__":
    sys.exit(main())
