"""Trees of processes as a server has them, with files in /dev/shm, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


SHM = Path("/dev/shm")  # noqa: S108 - where Linux has shared memory
STUB = Path(__file__).parents[1] / "servers" / "stub.py"
TOKEN = "TREES_TOKEN"
GONE_S = 20.0
PROCESSES, FILES = 5, 3
"""Two guards, the server, its worker and its daemon."""

# Starts a server under a guard, as a run does, and waits for its end.
RUNNER = """
import os, sys
from pathlib import Path
from pytest_vllm_gates.process.process import GuardedProcess
process = GuardedProcess([sys.executable, "-I", "-S", "-c", sys.argv[1], *sys.argv[3:]],
                         env=dict(os.environ), log=Path(sys.argv[2]), grace_s=0.3)
print(process.pid, flush=True)
while process.wait(600) is None:
    pass
"""
# Creates shared memory, a worker in its own session that ignores SIGTERM, and a daemon; then it
# becomes the stub server.
SERVER = """
import mmap, os, signal, sys, time
def share(number):
    path = f"/dev/shm/psm_{os.environ['TREES_TOKEN']}_{number}"
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.ftruncate(handle, 4096)
    held.append(mmap.mmap(handle, 4096))
    os.close(handle)
held = []
share("server")
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    share("worker")
    time.sleep(600)
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        share("daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
print("ready", flush=True)
os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[1:]])
"""


class Tree:
    """One runner with its guards and its server; `kill` kills one of them."""

    def __init__(self, token: str, log: Path) -> None:
        self.token = token
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.runner = subprocess.Popen(
            [sys.executable, "-c", RUNNER, SERVER, str(log), str(STUB), str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, TOKEN: token, "FAKE_NAME": "stub"},
        )  # fmt: skip
        self.log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pid in (self.runner.pid, *self.left()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.runner.communicate()
        for file in self.files():
            file.unlink(missing_ok=True)

    def await_ready(self) -> None:
        """Wait until the server has created everything."""
        deadline = time.monotonic() + GONE_S
        while not (
            self.log.exists()
            and "ready" in self.log.read_text()
            and len(self.files()) == FILES
            and len(self.left()) == PROCESSES
        ):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def members(self) -> dict[str, int]:
        """Return the existing processes by their part."""
        parts = ("outer guard", "inner guard", "server", "worker")
        return {"runner": self.runner.pid} | dict(
            zip(parts, _chain(self.runner.pid, len(parts)), strict=False)
        )

    def kill(self, *parts: str) -> None:
        """SIGKILL these parts at once; the runner instead of one that does not exist yet."""
        members = self.members()
        for part in parts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(members.get(part, self.runner.pid), signal.SIGKILL)

    def left(self) -> list[int]:
        """Return the live processes of this tree without the runner, wherever they are."""
        marked = f"{TOKEN}={self.token}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == self.runner.pid:
                continue
            with contextlib.suppress(OSError):
                if marked in (folder / "environ").read_bytes():
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(folder.name)] if state not in "ZX" else []
        return found

    def files(self) -> list[Path]:
        """Return the files of this tree in /dev/shm."""
        return sorted(SHM.glob(f"psm_{self.token}_*"))

    def remains(self) -> tuple[list[int], list[str]]:
        """Return the processes and files that are left after they had time to go."""
        deadline = time.monotonic() + GONE_S
        while (self.left() or self.files()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.left(), [file.name for file in self.files()]


def _chain(pid: int, length: int) -> list[int]:
    """Return a process's first child, its first child and so on."""
    chain: list[int] = []
    while len(chain) < length:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children:
                pid = int(children[0])
                chain.append(pid)
                continue
        break
    return chain
