"""Measures the cost of a fleet's verdict, and how often it is wrong.

    python benchmarks/fleet.py merge
    python benchmarks/fleet.py merge gates-report/verdict.json
    python benchmarks/fleet.py alarms

`merge` uses a verdict's first family for each of 500 shards and measures one merge in a separate
process. `alarms` simulates throughput gates of clean fleets over recorded noise (see
`error_rates.py`), 63 for each fleet: each fleet draws its gates from 4,000 simulated ones. Exits 1
if the merge takes 10 seconds or 500 MB, or if more than 1 % of clean fleets alarm.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from error_rates import (  # type: ignore[import-not-found, unused-ignore]
    PAIRS,
    RECORDED,
    calibrated,
    gate,
)

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import planned_throughput
from pytest_vllm_gates.fleet import reports, shards
from pytest_vllm_gates.fleet.alarms import corrected
from pytest_vllm_gates.fleet.durations import Durations, facts
from pytest_vllm_gates.fleet.plan import Served, compose
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.throughput.baselines import OURS
from pytest_vllm_gates.throughput.decision import Conclusion, Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARDS, MOST_S, MOST_MB = 500, 10.0, 500.0
FLEETS, GATES, PLAYED, MOST_ALARMS = 1000, 63, 4000, 0.01
VERDICT = Path(__file__).parents[1] / "tests" / "report" / "documents" / "reject.json"
MERGE = "import sys; from pytest_vllm_gates.cli.main import main; sys.exit(main(sys.argv[1:]))"


def merge(verdict: Path) -> bool:
    """Merge 500 copies of a verdict; return whether time and memory are within their limits."""
    document: dict[str, Any] = json.loads(verdict.read_text(encoding="utf-8"))
    family = document["families"][0]
    document["families"] = [family]
    gates = tuple(entry["gate"] for entry in family["gates"])
    lane = document["lane"]["name"]
    wanted = [Served(f"family{number}", lane, gates, shards.Needs()) for number in range(SHARDS)]
    plan = compose(wanted, (), Durations(facts().seconds))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards.write(folder / shards.FILE, plan)
        for shard in plan.shards:
            own = copy.deepcopy(document)
            own["families"][0]["name"] = shard.family
            (folder / "shards" / shard.name).mkdir(parents=True)
            reports.begin(folder / "shards" / shard.name, plan, shard)
            path = folder / "shards" / shard.name / "verdict.json"
            path.write_text(json.dumps(own, indent=2), encoding="utf-8")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", MERGE, "merge", "shards", "--report", "out"],
            cwd=folder, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - began
    memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    print(
        f"{SHARDS} verdicts of {len(json.dumps(document, indent=2)) / 1000:.0f} kB: "
        f"{done.stdout.splitlines()[0]}"
    )
    print(
        f"merged in {took_s:.1f} s (at most {MOST_S:.0f}), {memory_mb:.0f} MB (at most "
        f"{MOST_MB:.0f})"
    )
    return took_s <= MOST_S and memory_mb <= MOST_MB


def alarms() -> bool:
    """Simulate clean fleets; return whether few enough alarm."""
    chance = random.Random("fleet")  # noqa: S311 - it hides nothing
    pairs = PAIRS.validate_python(json.loads(RECORDED.read_text(encoding="utf-8"))[OURS]["pairs"])
    plan = planned_throughput(lanes.load("cpu", Path()).throughput)
    played = [
        gate(own, 0.0, judged_by, chance)[0]
        for own, judged_by in (calibrated(pairs, plan, chance) for _ in range(PLAYED))
    ]
    alone = sum(decision.answer is Conclusion.REGRESSION for decision in played) / PLAYED
    without = with_correction = 0
    for _ in range(FLEETS):
        fleet = [_result(decision) for decision in chance.choices(played, k=GATES)]
        without += _alarms(fleet)
        with_correction += _alarms(corrected(fleet)[0])
    print(f"{PLAYED} clean gates: {alone:.2%} alarm")
    print(
        f"{FLEETS} clean fleets of {GATES} gates: {with_correction / FLEETS:.1%} alarm (at most "
        f"{MOST_ALARMS:.0%}), {without / FLEETS:.0%} without the correction; chance alone "
        f"±{math.sqrt(MOST_ALARMS * (1 - MOST_ALARMS) / FLEETS):.1%}"
    )
    return with_correction / FLEETS <= MOST_ALARMS


def _result(decision: Decision) -> TestResult:
    outcome = Outcome.FAIL if decision.answer is Conclusion.REGRESSION else Outcome.PASS
    evidence = {"decision": decision.as_evidence()}
    return TestResult("family", "throughput", "speed", outcome, decision.why, evidence=evidence)


def _alarms(results: Sequence[TestResult]) -> bool:
    return any(result.outcome is Outcome.FAIL for result in results)


def main() -> int:
    """Measure one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("merge", "alarms"))
    parser.add_argument("verdict", type=Path, nargs="?", default=VERDICT, help="for `merge`")
    options = parser.parse_args()
    kept = alarms() if options.what == "alarms" else merge(options.verdict)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
