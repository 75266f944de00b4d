"""Measures processor time by who used it, and the machine's own speed on a fixed workload.

A busy shared machine slows a server on the processor and the fixed workload alike, so that the
workload's speed shows whether a server or the machine became slower.

    python -m pytest_vllm_gates.machine.cpu

does a round of work for each line it reads, and writes how many units a second it did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

TICKS = os.sysconf("SC_CLK_TCK")
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The fields of a processor's line in /proc/stat (proc(5)); guests' time after them is in
user's."""
SPARE = ("idle", "iowait")
"""Time that any process may take. A nice process's time is not spare: it gives way only within its
own session or control group (sched(7), "The autogroup feature")."""
PROGRAM = "pytest_vllm_gates.machine.cpu"
ROUND_S = 0.15
MOST_CORES = 8
UNIT = 2000


@dataclass(frozen=True)
class Times:
    """Processor time so far, in seconds."""

    machine: dict[str, float]
    """By the field of /proc/stat, over the processors that this process may run on."""
    server_s: float | None
    """The time of a server's processes; None if none are known."""
    own_s: float
    """The time of this process and of its children that have ended."""


@dataclass(frozen=True)
class CpuShares:
    """The shares of processor time between two readings."""

    steal: float
    """The share of the machine's time that its host gave to others."""
    others: float | None
    """The share that other processes took beyond the spare time, which a server missed;
    None if the server's processes are not known."""
    server_s: float | None
    """Processor time of the server's processes."""


def look(server: Sequence[int], root: Path = Path("/proc")) -> Times:
    """Read the processor time of the machine and of these processes."""
    return Times(_machine(root), _server(server, root), sum(os.times()[:4]))


def spent(before: Times, after: Times) -> CpuShares:
    """Return how processor time was shared between two looks."""
    passed = {name: after.machine[name] - before.machine.get(name, 0.0) for name in after.machine}
    total_s = sum(passed.values())
    server_s = (
        None
        if before.server_s is None or after.server_s is None
        else after.server_s - before.server_s
    )
    if not total_s:
        return CpuShares(0.0, None, server_s)
    steal = passed["steal"] / total_s
    if server_s is None:
        return CpuShares(steal, None, None)
    left = sum(passed[name] for name in SPARE)
    ours = server_s + after.own_s - before.own_s
    others = total_s - left - passed["steal"] - ours
    return CpuShares(steal, max(0.0, others - left) / total_s, server_s)


def _machine(root: Path) -> dict[str, float]:
    try:
        lines = (root / "stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [line.split()[1:] for line in lines if line.partition(" ")[0] in usable]
    return {name: sum(int(row[place]) for row in rows) / TICKS for place, name in enumerate(FIELDS)}


def _server(processes: Sequence[int], root: Path) -> float | None:
    ticks = 0
    for process in processes:
        try:
            stat = (root / f"{process}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended
        user, system = stat.rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / TICKS if processes else None


class Yardstick:
    """Processes, one a core, that measure the speed while the `with` block lasts."""

    def __enter__(self) -> Self:
        cores = min(len(os.sched_getaffinity(0)), MOST_CORES)
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )
            for _ in range(cores)
        ]  # fmt: skip
        self.speed()  # all have started
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()  # its input ends, and so does it

    def speed(self) -> float:
        """Work for a moment on every core; return units a second over all of them."""
        for process in self._processes:
            assert process.stdin  # noqa: S101 - it is a pipe
            process.stdin.write("\n")
        return sum(_units_per_s(process) for process in self._processes)


def _units_per_s(process: subprocess.Popen[str]) -> float:
    assert process.stdout  # noqa: S101 - it is a pipe
    return float(process.stdout.readline())


def work(seconds: float) -> float:
    """Do typical work of an interpreter for some seconds; return units a second."""
    began = time.perf_counter()
    table: dict[int, str] = {}
    done = 0
    while (took := time.perf_counter() - began) < seconds:
        for number in range(UNIT):
            table[number & 255] = str(number)
        done += 1
    return done / took


def main() -> None:
    """Work whenever a line comes in."""
    for _ in sys.stdin:
        print(work(ROUND_S), flush=True)


if __name__ == "__main__":
    main()
