"""Calibrates a machine by an A/A run: the scatter of one lane, and the smallest loss it shows."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.plans import Scatter
from pytest_vllm_gates.throughput.decide import SLOWDOWNS, pair_slowdowns
from pytest_vllm_gates.throughput.decision import PRIMARY
from pytest_vllm_gates.throughput.statistics import Mean, spend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.plans import Pair, ThroughputPlan

FLOOR = 1e-6
"""The least scatter that figures are assumed to have."""


def scatter_of(pairs: Sequence[Pair], plan: ThroughputPlan) -> Scatter | None:
    """Return how much pairs of the same lane differ.

    Their mean is known to be 0, because the boots are equal. None if no pair has enough fit blocks.
    """
    known = [slowdowns for pair in pairs if (slowdowns := pair_slowdowns(pair, plan)[0])]
    if not known:
        return None
    squares = {
        name: statistics.fmean(slowdowns[name] ** 2 for slowdowns in known) for name in SLOWDOWNS
    }
    # Figures that never differ, because nothing was timed, would make any difference significant.
    return Scatter(**{name: max(math.sqrt(value), FLOOR) for name, value in squares.items()})


def summary(scatter: Scatter, pairs: Sequence[Pair], plan: ThroughputPlan) -> str:
    """Return the result of an A/A run in words: the scatter, and the smallest loss by pairs."""
    sd = scatter.of(PRIMARY)
    minutes = statistics.fmean(pair.boots_s + pair.took_s for pair in pairs) / 60
    effects = ", ".join(
        f"{loss:.1%} in {number} pairs ({number * minutes:.0f} min)"
        for number, loss in smallest_effects(sd, len(pairs), plan).items()
    )
    return (
        f"A/A over {len(pairs)} pairs of boots: they differ by {sd:.1%} (sd); the smallest loss "
        f"that {1 - plan.odds.beta:.0%} of gates find: {effects}"
    )


def smallest_effects(sd: float, degrees: int, plan: ThroughputPlan) -> dict[int, float]:
    """Return the smallest loss that pairs of boots find in all but `beta` of gates.

    `sd`: how much pairs of boots of the same lane differ. The losses are shares, by the number of
    pairs.
    """
    least, most = plan.against.pairs
    effects = {}
    for number in range(least, most + 1):
        mean = Mean(0.0, sd / math.sqrt(number), degrees + number - 1)
        alarm = mean.below(spend(plan.odds.alpha, plan.against.pairs, number))
        effects[number] = 1 - math.exp(-(alarm + mean.below(plan.odds.beta)))
    return effects
