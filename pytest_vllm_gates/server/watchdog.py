"""Watches a loaded server and notices a hang: requests wait, and no counter changes."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.files import WriteError, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.metrics import Load, Metrics


@dataclass(frozen=True)
class RestState:
    """The server after a rung, when it had time to come to rest."""

    canary: Completion
    """Its answer to a short prompt."""
    in_flight: int | None
    """None if the server does not report it."""
    kv_usage: float | None
    memory_bytes: int | None
    """Resident memory of its processes; None if the server is not this run's."""


@dataclass(frozen=True)
class Hang:
    """A server that ran on without progress."""

    silent_s: float
    running: int
    waiting: int
    health: str
    """The answer of `/health` meanwhile."""
    stacks: Path | None
    """The file with the stacks of its processes."""


HEALTH_LIMIT_S = 5.0
STACKS_LIMIT_S = 20.0


class Watchdog:
    """Reads a server's metrics and remembers when they last changed."""

    def __init__(self, metrics: Metrics | None) -> None:
        """Without `metrics` only time passes."""
        self._metrics = metrics
        self._moved = time.monotonic()
        self.last: Load | None = None
        self.waited = 0

    def silent_s(self) -> float:
        """Return for how long nothing has changed, as far as can be observed."""
        if self._metrics is not None:
            try:
                load = self._metrics.load()
            except httpx.HTTPError:
                pass  # it does not even answer /metrics
            else:
                if self.last is None or load.progress != self.last.progress:
                    self._moved = time.monotonic()
                self.last = load
                self.waited = max(self.waited, load.waiting)
        return time.monotonic() - self._moved

    def hang(self, endpoint: Endpoint, processes: Iterable[int], folder: Path | None) -> Hang:
        """Record how the server hangs, with its stacks if a `folder` is given for them."""
        return Hang(
            silent_s=round(time.monotonic() - self._moved, 1),
            running=self.last.running if self.last else 0,
            waiting=self.last.waiting if self.last else 0,
            health=health(endpoint),
            stacks=stacks(processes, folder / "stacks.txt") if folder else None,
        )


def health(endpoint: Endpoint) -> str:
    """Return the answer of `/health`: a status, or why there is none."""
    try:
        with http.client(endpoint) as client:
            return str(client.get("/health", timeout=HEALTH_LIMIT_S).status_code)
    except httpx.HTTPError as error:
        return type(error).__name__


def stacks(processes: Iterable[int], path: Path) -> Path | None:
    """Write the stack of every thread of some processes; return the file, None for none.

    By py-spy if it is installed and permitted, else as far as the kernel shows it.
    """
    traces = [f"process {pid}\n{_py_spy(pid) or _kernel(pid)}" for pid in processes]
    if not traces:
        return None
    try:
        write_whole(path, "\n".join(traces))
    except WriteError:
        return None  # the hang is reported all the same
    return path


def _py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    try:
        dumped = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, timeout=STACKS_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return dumped.stdout if dumped.returncode == 0 else ""


def _kernel(pid: int) -> str:
    """Return each thread's name, state and the kernel function it waits in."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            name = (task / "comm").read_text(encoding="utf-8").strip()
            state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            wait_channel = (task / "wchan").read_text(encoding="utf-8").strip() or "0"
        except OSError:
            continue
        lines.append(f"  thread {task.name} {name}: state {state}, in {wait_channel}")
    return "\n".join(lines)


LOOK_S = 0.1


class Watch:
    """Polls in a separate thread while its `with` block lasts."""

    def __init__(
        self, metrics: Metrics | None, still_s: float, hang: Callable[[Watchdog], Hang]
    ) -> None:
        """`still_s`: how long nothing may change; `hang` describes a server without changes."""
        self._watchdog = Watchdog(metrics)
        self._still_s = still_s
        self._tell = hang
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen: list[Load] = []
        self.hang: Hang | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        watchdog = self._watchdog
        while not self._over.wait(LOOK_S):
            silent_s = watchdog.silent_s()
            if watchdog.last is None:
                continue  # it has no reading yet
            if watchdog.last not in self.seen[-1:]:
                self.seen.append(watchdog.last)
            if silent_s > self._still_s and not self.hang:
                self.hang = self._tell(watchdog)
