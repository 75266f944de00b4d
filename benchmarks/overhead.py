"""Measures the time of `pytest --model qwen3.5` besides the boot, and its own peak memory.

    python benchmarks/overhead.py --rounds 3

In turns, the same server is booted bare (no pytest; until its first answered chat) and through
`pytest --model` with the gates that judge the deployment itself (boot, prompts, numerics); the
conversation gates have a separate limit, see matrix.py. The overhead is the wall time of the run
without its boot, as a ratio of the bare boot. The memory is the peak of only the pytest process.
Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.server.launch import LaunchPlan, Server
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint

MODEL = "qwen3.5"
LANE = "cpu"
GATES = "boot or chat_template or numerics"
RATIO_LIMIT = 0.5
MEMORY_LIMIT_MB = 250.0
SAMPLE_S = 0.02


@dataclass(frozen=True)
class Run:
    """One run of the gates: total seconds, seconds to the first chat, and peak memory in MB."""

    wall_s: float
    boot_s: float
    gates_s: dict[str, float]
    memory_mb: float


@dataclass
class Seen:
    """What was seen of a process while it lived."""

    peak_mb: float = 0.0
    """Its highest resident memory in MiB."""
    cpu_s: float = 0.0
    """Its processor time, and the system's for it."""


def follow(pid: int, seen: Seen) -> None:
    """Follow a process, without its children, until it ends."""
    folder = Path(f"/proc/{pid}")
    while True:
        try:
            status = (folder / "status").read_text(encoding="ascii", errors="replace")
            stat = (folder / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return
        high = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        if not high:  # a zombie has no memory
            return
        seen.peak_mb = max(seen.peak_mb, int(high[0].split()[1]) / 1024)
        # proc_pid_stat(5): the fields after the name in parentheses; 14 is utime, 15 stime.
        fields = stat.rpartition(")")[2].split()
        seen.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(SAMPLE_S)


def checkpoint(model: str, folder: Path) -> Checkpoint:
    """Return the checkpoint that `boot` serves."""
    lane = lanes.load(LANE, folder)
    return checkpoints_resolve.resolve(families.load(model, folder), lane.checkpoint)


def boot(
    model: str,
    folder: Path,
    *,
    renderer: bool = False,
    environment_variables: Mapping[str, str] | None = None,
) -> Server:
    """Boot a family's miniature on the CPU, without pytest; raises SystemExit with the reason."""
    family = families.load(model, folder)
    lane = lanes.load(LANE, folder)
    lane = lane.model_copy(update={"env": {**lane.env, **(environment_variables or {})}})
    ready = environment.prepare(lane, cache=files.default_cache(), progress=print)
    server = Server(
        LaunchPlan(
            family=family,
            lane=lane,
            checkpoint=checkpoint(model, folder),
            python=ready.python,
            overlay=lane.overlay_path,
            folder=folder,
            limits=BootLimits(boot_s=1800, stall_s=300),
            renderer=renderer,
        ),
        lambda _: None,
    )
    if server.boot.endpoint is None:
        raise SystemExit(server.boot.failure.explain() if server.boot.failure else "no boot")
    return server


def bare_boot_s(folder: Path, model: str = MODEL) -> float:
    """Seconds from starting the server to its first answered chat, without pytest."""
    server = boot(model, folder)
    server.stop()
    assert server.boot.times  # noqa: S101 - it answered
    assert server.boot.times.first_chat_s is not None  # noqa: S101
    return server.boot.times.first_chat_s


def run_gates(folder: Path) -> Run:
    """Run the gates in an empty folder."""
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report"]
    started = time.monotonic()
    process = subprocess.Popen(
        [*argv, "--model", MODEL, "--lane", LANE, "-m", GATES],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    seen = Seen()
    watch = threading.Thread(target=follow, args=(process.pid, seen), daemon=True)
    watch.start()
    output, _ = process.communicate()
    wall_s = time.monotonic() - started
    watch.join()
    verdict = json.loads((folder / "report" / "verdict.json").read_text(encoding="utf-8"))
    (family,) = verdict["families"]
    if not family["boot"]["ok"]:
        raise SystemExit(output)
    boot_s = family["boot"]["times"]["first_chat_s"]
    gates_s = {gate["gate"]: gate["duration_s"] for gate in family["gates"]}
    gates_s["boot"] -= boot_s
    return Run(wall_s, boot_s, gates_s, seen.peak_mb)


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    bare_boots_s: list[float] = []
    runs: list[Run] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare_boots_s.append(bare_boot_s(Path(folder)))
            runs.append(run_gates(Path(folder)))
        run = runs[-1]
        gates = ", ".join(f"{name} {seconds:.1f}" for name, seconds in run.gates_s.items())
        print(
            f"bare boot {bare_boots_s[-1]:5.1f} s   pytest {run.wall_s:5.1f} s, of it boot "
            f"{run.boot_s:5.1f} s   gates: {gates}   peak {run.memory_mb:.0f} MB",
            flush=True,
        )
    over_s = statistics.median(run.wall_s - run.boot_s for run in runs)
    bare_s = statistics.median(bare_boots_s)
    memory_mb = statistics.median(run.memory_mb for run in runs)
    ratio = over_s / bare_s
    print(
        f"median of {rounds}: {over_s:.1f} s besides the boot / {bare_s:.1f} s bare boot = "
        f"{ratio:.2f} (at most {RATIO_LIMIT})   peak memory of pytest {memory_mb:.0f} MB "
        f"(at most {MEMORY_LIMIT_MB:.0f})"
    )
    return 0 if ratio <= RATIO_LIMIT and memory_mb <= MEMORY_LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
