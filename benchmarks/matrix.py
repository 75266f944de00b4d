"""Measures the requests and seconds of the conversation gates for each family, without the boot.

    python benchmarks/matrix.py [--model NAME ...] [--rounds N]

Each family is booted once in a round and gets the whole matrix, the hostile arguments, the stops,
the samples, and the dialogues in every API. Exits 1 if the median of a family's seconds exceeds the
limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FAMILIES = ("qwen3.5", "glm", "deepseek", "gemma")
GATES = "streaming or reasoning or tools or stop or structured or dialects"
LIMIT_S = 75.0


def measure(family: str) -> dict[str, Any]:
    """Run the conversation gates once; return seconds, cells, requests and checks."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "-q"]
        subprocess.run(
            [*argv, "--model", family, "-m", GATES],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        report = json.loads(Path(folder, "report", "verdict.json").read_text(encoding="utf-8"))
    (family_report,) = report["families"]
    tests = [test for gate in family_report["gates"] for test in gate["tests"]]
    seconds = sum(gate["duration_s"] for gate in family_report["gates"])
    return {
        "seconds": seconds - family_report["boot"]["times"]["first_chat_s"],
        "requests": sum(test["evidence"].get("requests", 0) for test in tests),
        "checks": len(tests),
    }


def main() -> int:
    """Measure, and print one line for each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", dest="models")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    worst = 0.0
    for family in options.models or FAMILIES:
        rounds = [measure(family) for _ in range(options.rounds)]
        seconds = statistics.median(figures["seconds"] for figures in rounds)
        worst = max(worst, seconds)
        print(
            f"{family:9} {rounds[0]['requests']:3} requests, {rounds[0]['checks']:2} checks: "
            f"{seconds:5.1f} s beside the boot (at most {LIMIT_S:.0f})",
            flush=True,
        )
    return int(worst > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
