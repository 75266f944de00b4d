"""Where the time of the machine's processors goes: to a server, to its host, to others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TICKS = os.sysconf("SC_CLK_TCK")
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Those of a processor's line in /proc/stat (proc(5)); guests' time after them is in user's."""
SPARE = ("idle", "iowait")
"""What is there to take for whoever needs it. Not what a process that is nice takes: it gives way
within its own session or control group alone (sched(7), "The autogroup feature")."""


@dataclass(frozen=True)
class Times:
    """Processor time so far, in seconds."""

    machine: dict[str, float]
    """By the field of /proc/stat, over the processors that this process may run on."""
    server_s: float | None
    """That of a server's processes; None where none are known."""
    own_s: float
    """That of this process and of its children that have ended."""


@dataclass(frozen=True)
class Spent:
    """What of it went where between two looks."""

    steal: float
    """The share of the machine's time that its host gave to others."""
    others: float | None
    """The share that other processes took beyond what was left over, which is what a server missed;
    None where the server's processes are not known."""
    server_s: float | None
    """Processor time of the server's processes."""


def look(server: Sequence[int], root: Path = Path("/proc")) -> Times:
    """Read the processor time of the machine and of these processes."""
    return Times(_machine(root), _server(server, root), sum(os.times()[:4]))


def spent(before: Times, after: Times) -> Spent:
    """Return what was spent between two looks."""
    passed = {name: after.machine[name] - before.machine.get(name, 0.0) for name in after.machine}
    whole = sum(passed.values())
    server_s = (
        None
        if before.server_s is None or after.server_s is None
        else after.server_s - before.server_s
    )
    if not whole:
        return Spent(0.0, None, server_s)
    steal = passed["steal"] / whole
    if server_s is None:
        return Spent(steal, None, None)
    left = sum(passed[name] for name in SPARE)
    ours = server_s + after.own_s - before.own_s
    others = whole - left - passed["steal"] - ours
    return Spent(steal, max(0.0, others - left) / whole, server_s)


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
            told = (root / f"{process}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended
        user, system = told.rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / TICKS if processes else None
