"""What keeping incidents costs a run in which nothing fails: interleaved runs with and without.

    python benchmarks/incident_overhead.py --base-url URL --times 10 -- -m "reasoning or stop"

The server's key is read from $OPENAI_API_KEY. Each pair of runs is one with incidents and one
without, in turns the first. Told are the seconds of the tests as pytest counts them, the mean of
the pairs' ratios and its 95 % interval (Student's), and the same of pytest's own processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy import stats


def run(base_url: str, more: list[str], *, incidents: bool) -> tuple[float, float]:
    """Return the seconds the gates' tests took, and the processor's seconds of the process."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pytest", "--model", "qwen3.5", "--base-url", base_url]
        argv += ["--checkpoint", "miniature", "--gates-report=report", "-p", "no:cacheprovider"]
        argv += [f"--rootdir={folder}", "-q", *([] if incidents else ["--no-incidents"]), *more]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        file = Path(folder, "report", "verdict.json")
        if done.returncode or not file.is_file():
            sys.exit(f"a run failed, and measures nothing:\n{done.stdout}{done.stderr}")
        verdict = json.loads(file.read_text(encoding="utf-8"))
    seconds = sum(
        test["duration_s"]
        for family in verdict["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    )
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy


def told(what: str, ratios: list[float]) -> str:
    """Return a mean of ratios with its interval."""
    mean = statistics.fmean(ratios)
    reach = 0.0
    if len(ratios) > 1:
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        reach = float(stats.t.isf(0.025, len(ratios) - 1)) * error
    return f"{what}: {mean - 1:+.2%} ({mean - reach - 1:+.2%} to {mean + reach - 1:+.2%})"


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("more", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    pairs: list[dict[bool, tuple[float, float]]] = []
    for number in range(given.times):
        order = [True, False] if number % 2 else [False, True]
        pair = {one: run(given.base_url, given.more, incidents=one) for one in order}
        pairs.append(pair)
        with_s, without_s = pair[True][0], pair[False][0]
        print(f"{number + 1}: {with_s:.2f} s with incidents, {without_s:.2f} s without", flush=True)
    print(told("time of the tests", [pair[True][0] / pair[False][0] for pair in pairs]))
    print(told("processor time", [pair[True][1] / pair[False][1] for pair in pairs]))


if __name__ == "__main__":
    main()
