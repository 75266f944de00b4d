"""Decides whether one running server is slower than another, from blocks in turns without boots.

Each server is one boot. The blocks show how much these two differ, and how surely: by batch means
(A. M. Law, Simulation Modeling and Analysis, 5th ed., 9.5.3), so successive blocks need not be
independent. The blocks do not show how much boots of one bundle differ. That is only known from
earlier runs (`pair_sd`), and counts when a server is judged slower:

- NO REGRESSION concerns these two servers: surely slower by less than the margin.
- REGRESSION requires a loss that is surely larger than the difference of boots of one bundle.

No group is left out as a warm-up: the servers already run and are warm. Groups to leave out would
be chosen by their scatter, which then looks too small: 7 % of comparisons passed a loss of the
margin with it and 3 % without (`benchmarks/error_rates_running.py`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.throughput.decide import FIT_SHARE, SLOWDOWNS, conclude, trimmed, unfit_group
from pytest_vllm_gates.throughput.decision import PRIMARY, Conclusion, Decision, too_few
from pytest_vllm_gates.throughput.statistics import Mean, spend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.plans import BlockGroup, Pair, ThroughputPlan

BATCHES = 10
FEWEST_BATCHES = 4
FLOOR = 1e-6
"""The least standard error: figures that never differ would make any difference significant."""
LIKELY_ERRORS = 2
"""The number of standard errors by which more blocks may still move a mean."""


@dataclasses.dataclass(frozen=True)
class RunningDecision:
    """The decision on the blocks of two running servers."""

    decision: Decision
    settled: bool
    """Whether more blocks would not change it."""


def against_server(rounds: Sequence[Pair], plan: ThroughputPlan) -> RunningDecision:
    """Decide by the rounds so far; each has `[running] groups`, without a boot."""
    groups = [group for each in rounds for group in each.groups]
    reasons = [unfit_group(group, plan.unfit) for group in groups]
    fit = [group for group, why in zip(groups, reasons, strict=True) if not why]
    void = Counter(filter(None, reasons))
    least = plan.running.rounds[0]
    enough = len(fit) >= max(FIT_SHARE * len(groups), FEWEST_BATCHES)
    if len(rounds) < least or not enough:
        why = f"{len(rounds)} rounds of blocks, {least} are needed"
        if len(rounds) >= least:
            why = too_few(void, len(groups), "groups of four blocks")
        unknown = Decision(Conclusion.INCONCLUSIVE, why, void=dict(void))
        return RunningDecision(unknown, settled=False)
    measured = {name: batch_mean(_slowdowns(name, fit)) for name in SLOWDOWNS}
    with_boots = {name: _widened(name, mean, plan) for name, mean in measured.items()}
    alpha, beta = (
        spend(error, plan.running.rounds, len(rounds))
        for error in (plan.odds.alpha, plan.odds.beta)
    )
    slower = conclude(with_boots, plan.against.margin, (alpha, beta), dict(void), _about(plan))
    if slower.answer is Conclusion.REGRESSION:
        return RunningDecision(slower, settled=True)
    if measured[PRIMARY].below(beta) < -math.log1p(-plan.against.margin):
        passed = Decision(
            Conclusion.NO_REGRESSION, _about(plan), measured, (alpha, beta), dict(void)
        )
        return RunningDecision(passed, settled=True)
    why = _about(plan)
    if measured[PRIMARY].above(alpha) > 0:
        why = f"this server is slower, but not by more than two boots of one bundle differ; {why}"
    unknown = Decision(Conclusion.INCONCLUSIVE, why, measured, (alpha, beta), dict(void))
    return RunningDecision(unknown, settled=_stays_unknown(measured[PRIMARY], plan))


def _stays_unknown(mean: Mean, plan: ThroughputPlan) -> bool:
    """Return whether more rounds would hardly decide, even without an error of the blocks."""
    alpha = spend(plan.odds.alpha, plan.running.rounds, plan.running.rounds[1])
    likely = LIKELY_ERRORS * mean.error
    at_most = Mean(mean.value + likely, plan.against.pair_sd.of(PRIMARY), plan.against.degrees)
    at_least = mean.value - likely
    return at_most.above(alpha) <= 0 and at_least >= -math.log1p(-plan.against.margin)


def batch_mean(values: Sequence[float]) -> Mean:
    """Return the mean of a series of successive values, by batch means.

    It needs at least `FEWEST_BATCHES` values.
    """
    count = min(BATCHES, len(values))
    bounds = [number * len(values) // count for number in range(count + 1)]
    batches = [trimmed(values[begin:end]) for begin, end in itertools.pairwise(bounds)]
    error = statistics.stdev(batches) / math.sqrt(count)
    return Mean(statistics.fmean(batches), max(error, FLOOR), count - 1)


def _slowdowns(name: str, groups: Sequence[BlockGroup]) -> list[float]:
    of = SLOWDOWNS[name]
    return [
        statistics.fmean(map(of, group.ours)) - statistics.fmean(map(of, group.theirs))
        for group in groups
    ]


def _widened(name: str, mean: Mean, plan: ThroughputPlan) -> Mean:
    """Return a mean with the scatter of boots in its error (Welch and Satterthwaite's degrees)."""
    sd, boots = plan.against.pair_sd.of(name), plan.against.degrees
    blocks, between = mean.error**2, sd**2
    degrees = (blocks + between) ** 2 / (blocks**2 / mean.degrees + between**2 / boots)
    return Mean(mean.value, math.sqrt(blocks + between), max(1, math.floor(degrees)))


def _about(plan: ThroughputPlan) -> str:
    """Return the limit of a comparison of two running servers, as a sentence."""
    sd = plan.against.pair_sd.of(PRIMARY)
    return (
        "this compares two running servers, each one boot: other boots of the same bundles would "
        f"differ from this by about {sd:.1%} (sd), which is not measured here"
    )
