"""Compares the time of `pytest --model all` with the bare boots of the families that it judges.

    python benchmarks/all_families.py --rounds 3

In turns, every family's server is booted bare (no pytest; until its first answered chat), and all
are judged in one run by the gates boot, chat_template and streaming. Prints how the run's time was
spent, and exits 1 if it took more than 1.6 times as long as the bare boots together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from overhead import LANE, boot  # type: ignore[import-not-found, unused-ignore]

from pytest_vllm_gates.catalog import family as families

GATES = "boot or chat_template or streaming"
LIMIT = 1.6


def bare_boots_s(folder: Path) -> dict[str, float]:
    """Boot every family without pytest; return the seconds until each one's first chat."""
    took: dict[str, float] = {}
    for name in families.files(folder):
        server = boot(name, folder)
        server.stop()
        assert server.boot.times  # noqa: S101 - it answered
        took[name] = server.boot.times.first_chat_s
    return took


def run_gates(folder: Path) -> tuple[float, list[dict[str, Any]]]:
    """Judge every family in one run in an empty folder; return its seconds and its figures."""
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "-q"]
    began = time.monotonic()
    subprocess.run(
        [*argv, "--model", "all", "--lane", LANE, "-m", GATES],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True,
    )  # fmt: skip
    took_s = time.monotonic() - began
    verdict = json.loads((folder / "report" / "verdict.json").read_text(encoding="utf-8"))
    return took_s, verdict["families"]


def main() -> int:
    """Measure in turns and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    ratios: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            bare_s = bare_boots_s(Path(folder))
            took_s, reports = run_gates(Path(folder))
        told_s = 0.0
        for family_report in reports:
            gates = {gate["gate"]: gate["duration_s"] for gate in family_report["gates"]}
            told_s += sum(gates.values())
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in gates.items())
            name, first_s = family_report["name"], family_report["boot"]["times"]["first_chat_s"]
            print(f"{name}: bare {bare_s[name]:.1f} s; {first_s:.1f} s to the first chat; {parts}")
        ratios.append(took_s / sum(bare_s.values()))
        print(
            f"in all {took_s:.1f} s, {took_s - told_s:.1f} s of it outside the gates; bare boots "
            f"{sum(bare_s.values()):.1f} s: {ratios[-1]:.2f} times",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"median of {rounds}: {ratio:.2f} times the bare boots (at most {LIMIT:g})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
