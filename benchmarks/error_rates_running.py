"""Measures how often two running servers are judged wrongly, by simulation over recorded noise.

    python benchmarks/error_rates_running.py
    python benchmarks/error_rates_running.py CALIBRATION.json --gates 1000

The file is the record of an A/A run, as for `error_rates.py`. A comparison is simulated on one
recorded pair of boots, with either boot as ours at random: each round is a stretch of its groups in
their order, from a random beginning (a moving-block bootstrap; H. R. Kuensch, The Annals of
Statistics 17, 1989), which keeps the dependence of neighbouring groups.

`boots`: the recorded pair with our boot slower by the loss; REGRESSION without a loss is a false
alarm. `these two`: the pair without its own difference, so that only the loss remains; NO
REGRESSION at the margin is a false pass. Prints the shares of each answer, the rounds, and the
minutes on the recording machine. Exits 1 if more than 1 % alarm without a loss, or more than 5 %
pass the margin.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from error_rates import (  # type: ignore[import-not-found, unused-ignore]
    PAIRS,
    RECORDED,
    draw_side,
    with_loss,
)

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import BlockGroup, Pair, planned_throughput
from pytest_vllm_gates.throughput.baselines import OURS
from pytest_vllm_gates.throughput.decide import SLOWDOWNS
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion
from pytest_vllm_gates.throughput.running import against_server

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.plans import ThroughputPlan

LOSSES = (0.0, 0.025, 0.05, 0.1, 0.2)


def compare(
    pair: Pair, loss: float, plan: ThroughputPlan, chance: random.Random
) -> tuple[Conclusion, int]:
    """Simulate one comparison; return its answer and the number of rounds."""
    rounds: list[Pair] = []
    answer, settled = Conclusion.INCONCLUSIVE, False
    while not settled and len(rounds) < plan.running.rounds[1]:
        begin = chance.randrange(len(pair.groups) - plan.running.groups + 1)
        stretch = pair.groups[begin : begin + plan.running.groups]
        rounds.append(Pair(tuple(slower(group, loss) for group in stretch)))
        so_far = against_server(rounds, plan)
        answer, settled = so_far.decision.answer, so_far.settled
    return answer, len(rounds)


def slower(group: BlockGroup, loss: float) -> BlockGroup:
    """Return a group whose first server is slower by this share."""
    first, second = (with_loss(block, loss) for block in group.ours)
    return BlockGroup((first, second), group.theirs)


def without_difference(pair: Pair, plan: ThroughputPlan) -> Pair:
    """Return a pair of boots without the mean difference of its drawn stretches."""
    slowdowns = [
        statistics.fmean(map(SLOWDOWNS[PRIMARY], group.ours))
        - statistics.fmean(map(SLOWDOWNS[PRIMARY], group.theirs))
        for group in pair.groups
    ]
    stretch = plan.running.groups
    own = statistics.fmean(
        statistics.fmean(slowdowns[begin : begin + stretch])
        for begin in range(len(slowdowns) - stretch + 1)
    )
    return Pair(tuple(slower(group, 1 - math.exp(own)) for group in pair.groups))


def main() -> int:
    """Simulate the comparisons for each loss."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("calibration", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--lane", default="cpu")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    recorded = json.loads(options.calibration.read_text(encoding="utf-8"))[OURS]
    pairs = PAIRS.validate_python(recorded["pairs"])
    plan = planned_throughput(lanes.load(options.lane, Path()).throughput)
    round_min = statistics.fmean(pair.took_s / len(pair.groups) for pair in pairs) / 60
    round_min *= plan.running.groups
    chance = random.Random(options.seed)  # noqa: S311 - it hides nothing
    shares: dict[tuple[str, float], Counter[Conclusion]] = {}
    for whose in ("boots", "these two"):
        for loss in LOSSES:
            answers: Counter[Conclusion] = Counter()
            needed: list[int] = []
            for _ in range(options.gates):
                pair = draw_side(chance.choice(pairs), chance)
                if whose == "these two":
                    pair = without_difference(pair, plan)
                answer, count = compare(pair, loss, plan, chance)
                answers[answer] += 1
                needed.append(count)
            shares[whose, loss] = answers
            told = ", ".join(
                f"{answers[conclusion] / options.gates:6.1%} {conclusion}"
                for conclusion in Conclusion
            )
            middle = statistics.median(needed)
            print(
                f"{whose}, loss {loss:5.1%}: {told}; rounds: median {middle:.0f}, mean "
                f"{statistics.fmean(needed):.1f}; minutes: median {middle * round_min:.1f}",
                flush=True,
            )
    alarms = shares["boots", 0.0][Conclusion.REGRESSION] / options.gates
    passes = shares["these two", plan.against.margin][Conclusion.NO_REGRESSION] / options.gates
    print(f"false alarms {alarms:.1%} (at most 1 %), false passes {passes:.1%} (at most 5 %)")
    return 0 if alarms <= plan.odds.alpha and passes <= plan.odds.beta else 1


if __name__ == "__main__":
    sys.exit(main())
