"""Runs one command and ends its whole process tree when the calling process ends.

A program of its own, standard library only (`python -I -S guard.py SECONDS COMMAND…`). Its standard
input is a pipe whose other end only the calling process has open: end of file means "stop", whether
the caller closed it or was killed with SIGKILL. It exits as the command did (128 + signal for a
signal).

The command's output goes through the guard, which redacts the secrets of the environment and of
the arguments: they never reach the log.

The guard has its own process group, so a terminal's Ctrl-C does not reach it, and is a "subreaper"
(prctl(2), Linux): a grandchild that daemonises is handed to it and not to init, and so is found.
It has no own session: Linux shares the machine between sessions (autogroup, sched(7)), and on
two cores a busy server in another session kept its clients from running for seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
REAPED_S = 3.0  # what killed processes get to leave the kernel's tables
PASSED_ON_S = 5.0  # what the last words get to be written
IDLE_S = 0.25
READ_BYTES = 2**16
LINGER_S = 1.0  # what an orphaned worker gets to end by itself once its parent is gone


def prctl(option: int, value: int) -> None:
    """Call prctl(2) where there is one; elsewhere only the process group is ended."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Return the parent's id of every live process by its own, zombies left out."""
    parent_of = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                # "pid (comm) state ppid": the command may hold spaces and brackets
                state, parent = stat.read().rpartition(")")[2].split()[:2]
            if state != "Z":
                parent_of[int(name)] = int(parent)
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
    """Send a signal to each process, those already gone aside."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_tree(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM the command, give it `grace_s` seconds, then SIGKILL whatever is left of its tree."""
    if child.poll() is None and grace_s > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        signal_all(descendants(os.getpid()), signal.SIGCONT)  # a paused process gets it, too
        deadline = time.monotonic() + grace_s
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    deadline = time.monotonic() + (LINGER_S if child.poll() is not None else 0)
    while descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.02)
    # A process killed here may have forked a moment before: look until nothing is found.
    while left := descendants(os.getpid()):
        signal_all(left, signal.SIGKILL)
        child.poll()
        time.sleep(0.02)
    child.wait()
    # Orphans that were handed to the guard are the guard's to reap. /proc calls one dead when its
    # first thread has ended, a while before the last one has and it can be reaped.
    deadline = time.monotonic() + REAPED_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.02)


def pass_on(source: int, target: int) -> None:
    """Copy `source` to `target` without secrets, until `source` ends.

    Keeps reading on errors: a server whose output is not read blocks.
    """
    try:
        # Isolated, this program finds nothing but the standard library by itself.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
        from pytest_vllm_gates.redaction import prompts  # noqa: PLC0415 - as above
        from pytest_vllm_gates.redaction.redactor import of_process  # noqa: PLC0415
        from pytest_vllm_gates.redaction.stream import Stream  # noqa: PLC0415

        redactor = of_process(os.environ, sys.argv[2:])
        if os.environ.get(prompts.VARIABLE, prompts.KEEP) != prompts.KEEP:
            redactor.prompts = prompts.Prompts(prompts.DROP)
        stream = Stream(redactor)
        while True:
            ready, _, _ = select.select([source], [], [], IDLE_S)
            data = os.read(source, READ_BYTES) if ready else b""
            clean = stream.feed(data) if data else stream.end() if ready else stream.idle()
            while clean:
                clean = clean[os.write(target, clean) :]
            if ready and not data:
                return
    finally:
        while os.read(source, READ_BYTES):
            pass


def main() -> int:
    """Run the command named on the command line until it ends or standard input closes."""
    grace_s = float(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()

    def in_child() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    try:
        child = subprocess.Popen(
            sys.argv[2:],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=in_child,  # noqa: PLW1509 - one thread
        )
    except OSError as error:
        print(f"cannot start {sys.argv[2]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    assert child.stdout is not None  # noqa: S101 - asked for above
    passing_on = threading.Thread(target=pass_on, args=(child.stdout.fileno(), 1), daemon=True)
    passing_on.start()
    while child.poll() is None:
        ready, _, _ = select.select([0], [], [], 0.05)
        if ready:
            request = os.read(0, 64)
            # The last line written is the grace period; a bare end of file keeps the default.
            if request.strip():
                grace_s = float(request.split()[-1])
            else:
                break
    end_tree(child, grace_s)
    passing_on.join(PASSED_ON_S)
    return 128 - child.returncode if child.returncode < 0 else child.returncode


if __name__ == "__main__":
    sys.exit(main())
