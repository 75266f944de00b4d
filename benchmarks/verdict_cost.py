"""Where a default run spends its time: the bare boot, the functional gates and the whole run.

    python benchmarks/verdict_cost.py [--rounds 1]

In turns, the server is booted bare (no pytest; until its first answered chat), judged by the
functional gates (all but load, throughput and endurance), and judged by `pytest --model qwen3.5
--lane cpu` as a whole, each in an empty folder. Prints the seconds of each gate, the requests that
the server answered (POST in its log, where the log has them), the wall time besides boot and gates
(imports, collection, report, pauses), the processor time of pytest and of the processes that it
started, the peak memory of the pytest process alone, and what a Python process grows by as it
imports each part of that. If the functional gates take too long, a line says what is in the way.
Medians over the rounds; exits 1 where one is beyond its limit.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import overhead  # type: ignore[import-not-found, unused-ignore]

MODEL, LANE = "qwen3.5", "cpu"
FUNCTIONAL = "not (load or throughput or endurance)"
FUNCTIONAL_BOOTS, FUNCTIONAL_MORE_S = 2.0, 20.0
"""Functional gates may take so many bare boots, and so many seconds besides."""
WHOLE_LIMIT_S = 100.0
SLOWEST = 3
MEMORY_LIMIT_MB = 250.0


PARTS = (
    "pytest", "pytest_vllm_gates.pytest_hooks", "openai", "anthropic", "numpy",
    "pytest_vllm_gates.dialects.strict",
)  # fmt: skip
GROWTH = """
import importlib, sys
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
before = resident()
print(before)
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(resident() - before)
    before = resident()
"""


@dataclass(frozen=True)
class Cost:
    """What one run of the gates took."""

    wall_s: float
    boot_s: float
    """From the server's start to its first answered chat."""
    gates_s: dict[str, float]
    """By gate, without the boot."""
    requests: int
    """POST in the server's log; 0 where the log has none."""
    memory_mb: float
    """Peak resident memory of pytest, its children left out."""
    pytest_cpu_s: float = 0.0
    """Processor time of pytest, its children left out."""
    others_cpu_s: float = 0.0
    """Processor time of the processes that pytest started, above all the server."""

    @property
    def rest_s(self) -> float:
        """What is neither boot nor gate."""
        return self.wall_s - self.boot_s - sum(self.gates_s.values())


def read(verdict: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Return the seconds of the boot, and of each gate without it, from a run's verdict.

    Raises SystemExit if no gate took as long as the boot.
    """
    (family,) = verdict["families"]
    boot_s = float(family["boot"]["times"]["first_chat_s"])
    gates_s = {gate["gate"]: float(gate["duration_s"]) for gate in family["gates"]}
    # The boot counts in the gate whose test waits for it: the first that takes as long.
    waiting = next((gate for gate, seconds in gates_s.items() if seconds >= boot_s), None)
    if waiting is None:
        raise SystemExit(f"no gate took the {boot_s:.1f} s of the boot: whose is it? {gates_s}")
    gates_s[waiting] -= boot_s
    return boot_s, gates_s


def run(folder: Path, selection: str, model: str = MODEL) -> Cost:
    """Run the gates in an empty folder; raises SystemExit where the server did not boot."""
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "--color=no"]
    argv += ["--model", model, "--lane", LANE, *(["-m", selection] if selection else [])]
    began = time.monotonic()
    with (folder / "output").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True
        )
        seen = overhead.Seen()
        watch = threading.Thread(target=overhead.follow, args=(process.pid, seen), daemon=True)
        watch.start()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process.wait()
        wall_s = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        watch.join()
    report = folder / "report" / "verdict.json"
    text = (folder / "output").read_text(encoding="utf-8")
    if not report.is_file():
        raise SystemExit(text)
    verdict = json.loads(report.read_text(encoding="utf-8"))
    if not verdict["families"][0]["boot"]["ok"]:
        raise SystemExit(text)
    logs = (folder / "report").rglob("server.log")
    requests = sum(
        log.read_text(encoding="utf-8", errors="replace").count('"POST /') for log in logs
    )
    all_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    others_s = max(0.0, all_s - seen.cpu_s)
    return Cost(wall_s, *read(verdict), requests, seen.peak_mb, seen.cpu_s, others_s)


def line(name: str, cost: Cost) -> str:
    """Return a run's line: how its time was spent."""
    slowest = sorted(cost.gates_s.items(), key=lambda each: -each[1])
    gates = ", ".join(f"{gate} {seconds:.1f}" for gate, seconds in slowest)
    return (
        f"{name}: {cost.wall_s:.1f} s, of it boot {cost.boot_s:.1f} s, besides boot and gates "
        f"{cost.rest_s:.1f} s, {cost.requests or 'unknown'} requests, peak {cost.memory_mb:.0f} "
        f"MB; processor time of pytest {cost.pytest_cpu_s:.1f} s, of the server and the rest "
        f"{cost.others_cpu_s:.1f} s; gates: {gates}"
    )


def imports() -> str:
    """Return the memory of Python, and what each part adds to it, imported in this order."""
    printed = subprocess.run(
        [sys.executable, "-c", GROWTH, *PARTS], capture_output=True, text=True, check=True
    ).stdout.split()
    parts = zip(("Python", *PARTS), map(int, printed), strict=True)
    return "imports: " + ", ".join(f"{name} {kib / 1024:.0f} MB" for name, kib in parts)


def in_the_way(cost: Cost, limit_s: float) -> str:
    """Return which gates take longest, and who computes, where a run is beyond its limit."""
    slowest = sorted(cost.gates_s.items(), key=lambda each: -each[1])[:SLOWEST]
    gates = ", ".join(f"{gate} ({seconds:.1f} s)" for gate, seconds in slowest)
    cores = (cost.others_cpu_s + cost.pytest_cpu_s) / cost.wall_s
    return (
        f"in the way: {cost.wall_s - limit_s:.1f} s too long; {gates} wait for the server, which "
        f"computes for {cost.others_cpu_s / cost.wall_s:.0%} of the run; pytest computes for "
        f"{cost.pytest_cpu_s / cost.wall_s:.0%}; {cores:.2f} cores are busy"
    )


def summary(
    bare_s: float, functional_s: float, whole_s: float, memory_mb: float
) -> tuple[str, bool]:
    """Return the figure with its limits, and whether it keeps to all."""
    limit_s = FUNCTIONAL_BOOTS * bare_s + FUNCTIONAL_MORE_S
    sentence = (
        f"bare boot {bare_s:.1f} s; functional gates {functional_s:.1f} s (at most {limit_s:.1f}: "
        f"{FUNCTIONAL_BOOTS:.0f} bare boots + {FUNCTIONAL_MORE_S:.0f} s); whole run "
        f"{whole_s:.1f} s (at most {WHOLE_LIMIT_S:.0f}); peak memory of pytest "
        f"{memory_mb:.0f} MB (less than {MEMORY_LIMIT_MB:.0f})"
    )
    kept = functional_s <= limit_s and whole_s <= WHOLE_LIMIT_S and memory_mb < MEMORY_LIMIT_MB
    return sentence, kept


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    bare: list[float] = []
    functional: list[Cost] = []
    whole: list[Cost] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare.append(overhead.bare_boot_s(Path(folder)))
        for runs, name, selection in (
            (functional, "functional gates", FUNCTIONAL),
            (whole, "whole run", ""),
        ):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run(Path(folder), selection))
            print(line(name, runs[-1]), flush=True)
    sentence, kept = summary(
        statistics.median(bare),
        statistics.median(one.wall_s for one in functional),
        statistics.median(one.wall_s for one in whole),
        max(one.memory_mb for one in (*functional, *whole)),
    )
    limit_s = FUNCTIONAL_BOOTS * statistics.median(bare) + FUNCTIONAL_MORE_S
    if functional[-1].wall_s > limit_s:
        print(in_the_way(functional[-1], limit_s))
    print(imports())
    print(sentence)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
