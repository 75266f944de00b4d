"""Runs the gates repeatedly on healthy servers, each newly booted: every run has to PROMOTE.

    python benchmarks/clean_runs.py --times 10 [--model all] [--lane cpu] [--log alarms.jsonl]
        [--project FOLDER]

A baseline of each family is recorded before the first run, unless FOLDER has one of an earlier day
in its golden/: then separate runs compare with the same baseline. If the machine is too busy to
record one, throughput is MISSING in the runs. Each run appends a line to the log, which
`false_alarms.py tally` counts.

Nobody trusts a gate that sometimes fails on a healthy server. Prints a line for each run, with the
reason if it was not clean; exits 1 if a run was not clean.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from false_alarms import record  # type: ignore[import-not-found, unused-ignore]

RECORDINGS = 3
COUNTED = ("PASS", "KNOWN", "N/A")


def main() -> int:
    """Judge so many times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--model", default="all")
    parser.add_argument("--lane", default="cpu")
    parser.add_argument("--log", type=Path, default=Path("alarms.jsonl"))
    parser.add_argument("--project", type=Path, help="a folder that keeps the baselines")
    options, arguments = parser.parse_known_args()
    argv = [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "--color=no"]
    argv += ["--model", options.model, "--lane", options.lane]
    with tempfile.TemporaryDirectory() as passing:
        project = options.project or Path(passing)
        project.mkdir(parents=True, exist_ok=True)
        if not any(project.glob(f"golden/baselines/*/*_{options.model}-*-{options.lane}.json")):
            record_baselines(argv, project)
        argv += arguments
        return judge(argv, options, project / "golden")


def record_baselines(argv: list[str], folder: Path) -> None:
    """Record each family's; where others keep the machine busy, that is tried again."""
    recording = [*argv, "-m", "throughput", "--update-baseline"]
    before = [*folder.glob("golden/baselines/*/*.json")]
    for _ in range(RECORDINGS):
        subprocess.run(recording, cwd=folder, stdin=subprocess.DEVNULL, check=False)
        if [*folder.glob("golden/baselines/*/*.json")] != before:
            return
    print(f"no baseline could be recorded in {RECORDINGS} tries: see above", flush=True)


def judge(argv: list[str], options: argparse.Namespace, golden: Path) -> int:
    """Judge so many times, each in an empty folder with the machine's baselines in it."""
    times = options.times
    clean = 0
    for number in range(1, times + 1):
        with tempfile.TemporaryDirectory() as folder:
            if golden.is_dir():
                shutil.copytree(golden, Path(folder, "golden"))
            began = time.monotonic()
            process = subprocess.run(
                argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            took_s = time.monotonic() - began
            file = Path(folder, "report", "verdict.json")
            report = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        told = record(f"booted on {options.lane}", options.model, took_s, report)
        good = process.returncode == 0 and told["outcomes"].keys() <= set(COUNTED)
        good = good and bool(told["outcomes"])
        clean += good
        with options.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**told, "clean": good}) + "\n")
        counts_line = ", ".join(f"{count} {outcome}" for outcome, count in told["outcomes"].items())
        print(f"{number:3d}  {report.get('promotion')}  {took_s:.0f} s  {counts_line}", flush=True)
        if not good:
            print(process.stdout + process.stderr, flush=True)
    print(f"{clean} of {times} clean")
    return 0 if clean == times else 1


if __name__ == "__main__":
    sys.exit(main())
