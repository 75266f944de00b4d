"""Measures the seconds of `numerics` and `sampling` for each family, without the boot.

    python benchmarks/numbers_time.py [--model NAME ...] [--rounds N]

Each family is booted once in a round and judged by both gates. Prints the medians, the load of the
machine before the first round, and the number of busy processors during the rounds: more than the
two gates use is other load. Exits 1 if the median of a family's seconds exceeds the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = ("qwen3.5", "glm", "deepseek", "gemma")
GATES = ("numerics", "sampling")
LIMIT_S = 25.0
IDLE_FIELDS = (3, 4)
"""The columns of the first line of /proc/stat for idle, and for waiting for a disk."""


def measure(model: str) -> dict[str, float]:
    """Run the two gates once; return the seconds of each, without the first chat."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "-q"]
        subprocess.run(
            [*argv, "--model", model, "-m", " or ".join(GATES)],
            cwd=folder, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        report = json.loads(Path(folder, "report", "verdict.json").read_text(encoding="utf-8"))
    (family,) = report["families"]
    seconds = {gate["gate"]: gate["duration_s"] for gate in family["gates"]}
    return {gate: seconds[gate] for gate in GATES} | {
        "first chat": -family["boot"]["times"]["first_chat_s"]
    }


def busy_s() -> float:
    """Return the busy seconds of all processors since the machine started."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    ticks = sum(int(word) for at, word in enumerate(first) if at not in IDLE_FIELDS)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, and print one line for each family."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", action="append", dest="models")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    worst = 0.0
    for model in options.models or MODELS:
        load, busy, began = os.getloadavg()[0], busy_s(), time.monotonic()
        rounds = [measure(model) for _ in range(options.rounds)]
        took = time.monotonic() - began
        middle = sorted(rounds, key=lambda each: sum(each.values()))[len(rounds) // 2]
        seconds = statistics.median(sum(each.values()) for each in rounds)
        worst = max(worst, seconds)
        print(
            f"{model:9} {seconds:5.1f} s beside the boot (at most {LIMIT_S:.0f}): "
            + ", ".join(f"{name} {value:.1f}" for name, value in middle.items())
            + f"; load before {load:.1f}, {(busy_s() - busy) / took:.2f} of {os.cpu_count()} "
            "processors busy",
            flush=True,
        )
    return int(worst > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
