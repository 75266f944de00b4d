"""Measures how often the throughput gate is wrong, by simulation over recorded noise.

    python benchmarks/error_rates.py
    python benchmarks/error_rates.py CALIBRATION.json --gates 1000

The file is the record of an A/A run: `pytest --model qwen3.5 --lane cpu --against cpu --pairs 15 -m
throughput --update-baseline` for 30 boots. The default is the record of such a run on two cores on
2026-11-22, without the servers' metrics; `recorded/aa_real_gates.json` is from the A/A gates of
`real_gates.py`, on noisier days. A gate is simulated by drawing pairs of boots with replacement,
with either boot as ours at random, and from each pair its groups of blocks with replacement (a
two-stage bootstrap); a loss is added to all our blocks. A random half of the pairs calibrates the
gate and the other half is drawn from, so no gate knows the noise that it is judged by; with
`--shipped` the gates are not calibrated and use the scatter in the lane's file. Prints the shares
of each answer, the pairs of boots and the minutes needed. Exits 1 if more than 1 % of the gates
alarm without a loss, fewer than 95 % find a loss of 5 %, or any misses a loss of 10 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import statistics
import sys
from collections import Counter
from pathlib import Path

from pydantic import TypeAdapter

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import (
    Block,
    BlockGroup,
    Pair,
    Scatter,
    ThroughputPlan,
    planned_throughput,
)
from pytest_vllm_gates.throughput.baselines import OURS
from pytest_vllm_gates.throughput.calibration import scatter_of
from pytest_vllm_gates.throughput.decide import against_lane
from pytest_vllm_gates.throughput.decision import Conclusion, Decision

RECORDED = Path(__file__).parent / "recorded" / "aa_qwen3.5_cpu.json"
LOSSES = (0.0, 0.025, 0.05, 0.1)
PAIRS = TypeAdapter(list[Pair])


def with_loss(block: Block, loss: float) -> Block:
    """Return a block of a server that is slower by this share."""
    longer = 1 / (1 - loss)
    return dataclasses.replace(
        block,
        took_s=block.took_s * longer,
        ttft_s=block.ttft_s * longer,
        itl_s=block.itl_s * longer,
    )


def draw_pair(pairs: list[Pair], loss: float, chance: random.Random) -> Pair:
    """Return a resampled pair with our boot slower by the loss."""
    pair = draw_side(chance.choice(pairs), chance)
    groups = tuple(
        BlockGroup((with_loss(group.ours[0], loss), with_loss(group.ours[1], loss)), group.theirs)
        for group in chance.choices(pair.groups, k=len(pair.groups))
    )
    return Pair(groups, pair.boots_s, pair.took_s)


def draw_side(pair: Pair, chance: random.Random) -> Pair:
    """Return a pair with either of its servers as ours, at random."""
    if chance.random() < 0.5:  # noqa: PLR2004 - heads or tails
        return pair
    groups = tuple(BlockGroup(group.theirs, group.ours) for group in pair.groups)
    return Pair(groups, pair.boots_s, pair.took_s)


def gate(
    pairs: list[Pair], loss: float, plan: ThroughputPlan, chance: random.Random
) -> tuple[Decision, int, float]:
    """Simulate one gate; return its decision, and the pairs and minutes that it needed."""
    drawn_pairs = [draw_pair(pairs, loss, chance)]
    decision = against_lane(drawn_pairs, plan)
    while decision.answer is Conclusion.INCONCLUSIVE and len(drawn_pairs) < plan.against.pairs[1]:
        drawn_pairs.append(draw_pair(pairs, loss, chance))
        decision = against_lane(drawn_pairs, plan)
    return decision, len(drawn_pairs), sum(pair.boots_s + pair.took_s for pair in drawn_pairs) / 60


def calibrated(
    pairs: list[Pair], plan: ThroughputPlan, chance: random.Random
) -> tuple[list[Pair], ThroughputPlan]:
    """Return a random half of the pairs to draw from, and the plan calibrated by the others."""
    mixed = chance.sample(pairs, len(pairs))
    half = len(mixed) // 2
    return mixed[half:], plan.calibrated(scatter(mixed[:half], plan), half)


def scatter(pairs: list[Pair], plan: ThroughputPlan) -> Scatter:
    """Return how much the pairs differ; ends the program if they do not show it."""
    found = scatter_of(pairs, plan)
    if found is None:
        sys.exit("no pair of boots has enough fit blocks: record them on a quiet machine")
    return found


def main() -> int:
    """Simulate the gates for each loss."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("calibration", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--lane", default="cpu")
    parser.add_argument("--shipped", action="store_true", help="gates that are not calibrated")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    recorded = json.loads(options.calibration.read_text(encoding="utf-8"))[OURS]
    pairs = PAIRS.validate_python(recorded["pairs"])
    plan = planned_throughput(lanes.load(options.lane, Path()).throughput)
    chance = random.Random(options.seed)  # noqa: S311 - it hides nothing
    overall = ", ".join(f"{name} {sd:.2%}" for name, sd in scatter(pairs, plan))
    print(f"{len(pairs)} pairs of boots, which differ by (sd) {overall}")
    rates: dict[float, Counter[Conclusion]] = {}
    for loss in LOSSES:
        answers: Counter[Conclusion] = Counter()
        needed: list[int] = []
        minutes: list[float] = []
        for _ in range(options.gates):
            played, own = calibrated(pairs, plan, chance)
            judged_by = plan if options.shipped else own
            decision, count, took = gate(played, loss, judged_by, chance)
            answers[decision.answer] += 1
            needed.append(count)
            minutes.append(took)
        rates[loss] = answers
        shares = ", ".join(
            f"{answers[conclusion] / options.gates:6.1%} {conclusion}" for conclusion in Conclusion
        )
        print(
            f"loss {loss:5.1%}: {shares}; pairs: median {statistics.median(needed):.0f}, mean "
            f"{statistics.fmean(needed):.1f}; minutes: median {statistics.median(minutes):.0f}",
            flush=True,
        )
    share = 1 / options.gates
    alarms = rates[0.0][Conclusion.REGRESSION] * share
    power = {loss: rates[loss][Conclusion.REGRESSION] * share for loss in (0.05, 0.1)}
    print(
        f"false alarms {alarms:.1%} (at most 1 %), 5 % slower found in {power[0.05]:.1%} (at least "
        f"95 %), 10 % slower in {power[0.1]:.1%} (all); odds of one gate in {options.gates}: "
        f"{math.sqrt(0.01 * 0.99 / options.gates):.2%}"
    )
    return 0 if alarms <= 0.01 and power[0.05] >= 0.95 and power[0.1] == 1 else 1  # noqa: PLR2004


if __name__ == "__main__":
    sys.exit(main())
