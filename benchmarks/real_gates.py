"""Measures how often the throughput gate is wrong, with repeated real comparisons of two lanes.

    python benchmarks/real_gates.py --gates 20                   equally fast: every alarm is wrong
    python benchmarks/real_gates.py --gates 20 --slower 0.05     slower: every missed one is wrong

Each gate is `pytest --model qwen3.5 --lane ours --against theirs -m throughput` in an empty folder.
Both are the shipped CPU lane; with `--slower` every step of our engine takes that share longer,
which reduces the tokens per second by a little less: the total loss is printed.

A gate takes minutes, twenty take hours: each adds a line to RECORDED when it ends. No new gate
starts after `--minutes`. The summary covers all gates in RECORDED. Exits 1 if too many were wrong.
Measure on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import Pair, planned_throughput
from pytest_vllm_gates.throughput.decide import pair_slowdowns
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "real_gates.jsonl"
SLOWER = HERE.parent / "tests" / "faults" / "slower"
MODEL = "qwen3.5"
LANE = "cpu"
MISSED = 0.05
"""The share of slower lanes that may be missed; an equally fast lane must never alarm."""
PAIRS = TypeAdapter(list[Pair])


def gate(slower: float) -> dict[str, Any]:
    """Judge once; return the answer, its sentence and the duration."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lanes(folder / "lanes", slower)
        began = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "--rootdir=.", "--gates-report=report", "--color=no",
             "--model", MODEL, "--lane", "ours", "--against", "theirs", "-m", "throughput"],
            cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        minutes = (time.monotonic() - began) / 60
        report = folder / "report" / "against" / f"{MODEL}.json"
        if not report.is_file():
            raise SystemExit(process.stdout + process.stderr)
        pairs = PAIRS.validate_python(json.loads(report.read_text(encoding="utf-8"))["pairs"])
    plan = planned_throughput(lanes.load(LANE, Path()).throughput)
    slowdowns = (pair_slowdowns(pair, plan)[0] for pair in pairs)
    return {
        "slower": slower,
        "answer": answered(process.stdout),
        "slowdowns": [round(slowdown[PRIMARY], 5) for slowdown in slowdowns if slowdown],
        "pairs": len(pairs),
        "minutes": round(minutes, 1),
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def write_lanes(folder: Path, slower: float) -> None:
    """Write our lane and theirs, which differ only in our engine's speed."""
    folder.mkdir()
    text = (lanes.SHIPPED / f"{LANE}.toml").read_text(encoding="utf-8")
    (folder / "theirs.toml").write_text(text, encoding="utf-8")
    slower_env = f'[env]\nPYTHONPATH = "{SLOWER}"\nVLLM_GATES_TEST_SLOWER = "{slower}"\n'
    our_lane = f"{text}\n{slower_env}" if slower else text
    (folder / "ours.toml").write_text(our_lane, encoding="utf-8")


def answered(output: str) -> str:
    """Return the gate's conclusion from the last lines of its run."""
    words = [line.partition("ours against theirs: ")[2] for line in output.splitlines()]
    words_said = [word for word in words if word]
    if not words_said:
        raise SystemExit(output)
    return max(
        (conclusion for conclusion in Conclusion if words_said[-1].startswith(conclusion)), key=len
    )


def summary(gates: list[dict[str, Any]], slower: float) -> tuple[str, bool]:
    """Return the summary of all gates of a kind, and whether few enough were wrong."""
    answers = Counter(each["answer"] for each in gates)
    found_count = answers[Conclusion.REGRESSION]
    wrong, may_be = (
        (len(gates) - found_count, MISSED * len(gates)) if slower else (found_count, 0.0)
    )
    loss = 1 - math.exp(-statistics.fmean(x for each in gates for x in each["slowdowns"]))
    minutes = statistics.median(each["minutes"] for each in gates)
    answers_line = ", ".join(f"{count} {answer}" for answer, count in answers.most_common())
    sentence = (
        f"{len(gates)} gates, ours {loss:.1%} slower on the whole: {answers_line}; wrong "
        f"{wrong} (at most {may_be:.0f}); minutes: median {minutes:.0f}"
    )
    return sentence, wrong <= may_be


def main() -> int:
    """Judge `--gates` times, and print the summary of all recorded gates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--gates", type=int, default=20)
    parser.add_argument("--slower", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=math.inf)
    options = parser.parse_args()
    RECORDED.parent.mkdir(exist_ok=True)
    deadline = time.monotonic() + 60 * options.minutes
    for number in range(1, options.gates + 1):
        if time.monotonic() >= deadline:
            break
        result = gate(options.slower)
        with RECORDED.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        slowdowns = ", ".join(f"{-value:+.1%}" for value in result["slowdowns"])
        print(f"{number:3d}  {result['answer']}  {slowdowns}  {result['minutes']} min", flush=True)
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    gates = [result for line in lines if (result := json.loads(line))["slower"] == options.slower]
    sentence, right = summary(gates, options.slower)
    print(sentence)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
