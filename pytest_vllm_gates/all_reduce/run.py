"""Runs an all-reduce between the ranks of a lane, and watches each rank meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.all_reduce.types import (
    KIB,
    AllReducePlan,
    Nodes,
    Rank,
    Ranks,
    RankStep,
    RankSum,
    WrongElement,
)
from pytest_vllm_gates.environment.overlay import lane_environment
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.process.process import GuardedProcess
from pytest_vllm_gates.server import startup
from pytest_vllm_gates.server.log import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_vllm_gates.catalog.lane import Lane

PROGRAM = Path(__file__).with_name("program.py")
POLL_S = 0.1
# torchrun's message on the worker whose end it noticed first (torch 2.1 to 2.13).
ENDED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
STATES = {
    "T": "stopped (SIGSTOP, or a debugger)",
    "t": "stopped by a debugger",
    "D": "waiting in the kernel, for a driver or a file system",
    "Z": "dead",
}


@dataclass(frozen=True)
class Task:
    """The input of one all-reduce; the ranks get the same settings as the lane's server."""

    lane: Lane
    python: Path
    overlay: Path | None
    env: Mapping[str, str]
    """The server's variables in addition to the lane's environment: its devices."""
    backend: str
    world: int
    nodes: Nodes
    folder: Path
    plan: AllReducePlan


def run(task: Task, progress: Callable[[str], None]) -> Ranks:
    """Start the ranks and wait for their end, or end them if none makes progress."""
    task.folder.mkdir(parents=True, exist_ok=True)
    for old in task.folder.glob("rank-*.jsonl"):
        old.unlink()
    log = task.folder / "all_reduce.log"
    log.unlink(missing_ok=True)
    argv = command(task)
    started = time.monotonic()
    process = GuardedProcess(argv, env=environment(task), log=log)
    try:
        status, silent_s = _wait(process, task, started, progress)
        ended_s = time.monotonic()
        ranks = tuple(_with_state(rank) if status is None else rank for rank in read(task))
    finally:
        process.stop()
    log_text = read_from(log)
    first_end = ENDED.search(log_text)
    return Ranks(
        backend=task.backend,
        world=task.world,
        ranks=ranks,
        log=log,
        command=tuple(argv),
        took_s=ended_s - started,
        status=status,
        silent_s=silent_s,
        ended_s=ended_s,
        ended=((_first_rank(task) + int(first_end[2]), int(first_end[1])),) if first_end else (),
        told={
            pattern.name: value
            for pattern in task.plan.told
            if (value := startup.value(pattern, log_text))
        },
    )


def command(task: Task) -> list[str]:
    """Return torchrun's command line."""
    nodes = task.nodes
    job = {
        "folder": str(task.folder),
        "backend": task.backend,
        "sizes": [size * KIB for size in task.plan.sizes_kib],
        "rounds": task.plan.rounds,
        "limit_s": task.plan.limit_s,
    }
    file = task.folder / "asked.json"
    write_whole(file, json.dumps(job))
    rendezvous = ["--standalone", "--local-addr=127.0.0.1"]
    if nodes.count > 1:
        rendezvous = [
            f"--nnodes={nodes.count}", f"--node-rank={nodes.rank}",
            f"--master-addr={nodes.address}", f"--master-port={nodes.port}",
        ]  # fmt: skip
    return [
        str(task.python), "-m", "torch.distributed.run", *rendezvous,
        f"--nproc-per-node={task.world // nodes.count}", str(PROGRAM), str(file),
    ]  # fmt: skip


def environment(task: Task) -> dict[str, str]:
    """Return the ranks' environment: the server's, with NCCL's log level that names its links."""
    env = lane_environment(task.lane, task.python, task.overlay, task.env)
    env.setdefault("NCCL_DEBUG", "INFO")
    env.pop("NCCL_DEBUG_FILE", None)  # the log has to be where it is read
    return env


def read(task: Task) -> tuple[Rank, ...]:
    """Return what the ranks of this machine have written so far."""
    first = _first_rank(task)
    numbers = range(first, first + task.world // task.nodes.count)
    return tuple(_rank(number, task.folder / f"rank-{number}.jsonl") for number in numbers)


def _first_rank(task: Task) -> int:
    return task.nodes.rank * (task.world // task.nodes.count)


def _rank(number: int, path: Path) -> Rank:
    facts: dict[str, Any] = {}
    steps, summed = [], []
    for line in read_from(path).splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:  # the end of the file, not yet whole
            break
        if "step" in record:
            steps.append(RankStep(record["number"], record["step"], record["at_s"]))
        elif "summed" in record["found"]:
            size_sum = record["found"]["summed"]
            wrong = WrongElement(**size_sum["wrong"]) if size_sum["wrong"] else None
            summed.append(RankSum(size_sum["bytes"], size_sum["round_s"], wrong))
        else:
            facts |= record["found"]
    failed = facts.pop("failed", "")
    return Rank(number, tuple(steps), tuple(summed), failed, facts)


def _wait(
    process: GuardedProcess, task: Task, started: float, progress: Callable[[str], None]
) -> tuple[int | None, float]:
    """Return the exit status, None for a hang, and the seconds since the last step."""
    while True:
        status = process.wait(POLL_S)
        ranks = read(task)
        now = time.monotonic()
        last = max((rank.steps[-1] for rank in ranks if rank.steps), key=_time, default=None)
        silent_s = now - max(last.at_s if last else 0.0, started)
        over = silent_s > task.plan.stall_s or now - started > task.plan.limit_s
        if status is not None or over:
            return status, silent_s
        progress(
            f"lane {task.lane.name}: all-reduce over {task.world} ranks, {now - started:.0f} s  "
            f"{last.name if last else 'they start'}"
        )


def _time(step: RankStep) -> float:
    return step.at_s


def _with_state(rank: Rank) -> Rank:
    """Return a rank with the kernel's state of its process."""
    pid = rank.facts.get("pid")
    if pid is None:
        return rank
    state = "Z"
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        state = stat.rpartition(")")[2].split()[0]
    return replace(rank, doing=STATES.get(state, ""))
