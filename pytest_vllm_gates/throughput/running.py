"""Decides whether one running server is slower than another, from blocks in turns without boots.

Each server is one boot. The blocks show how much these two differ, and how surely: by batch means
(A. M. Law, Simulation Modeling and Analysis, 5th ed., 9.5.3), so that blocks that follow one
another need not be independent. They do not show how much boots of one bundle differ. That is
known from before alone (`pair_sd`), and counts where a server is called slower:

- NO REGRESSION is said of these two servers: surely slower by less than the margin.
- REGRESSION is said only of a loss that is surely more than boots of one bundle differ by.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.throughput.decide import (
    FIT_SHARE,
    PRIMARY,
    SLOWDOWNS,
    Conclusion,
    Decision,
    conclude,
    too_few,
    trimmed,
    unfit_group,
)
from pytest_vllm_gates.throughput.statistics import Mean, spend, warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.plans import BlockGroup, Pair, ThroughputPlan

BATCHES = 10
FEWEST_BATCHES = 4
FLOOR = 1e-6
"""The least standard error: figures that never differ would make any difference a sure one."""
NEGLIGIBLE = 1 / 4
"""Where the error of the blocks is less than this share of what boots differ by, more blocks do
not change the answer."""


@dataclasses.dataclass(frozen=True)
class RunningDecision:
    """What the blocks of two running servers came to."""

    decision: Decision
    settled: bool
    """Whether more blocks would not change it."""


def against_server(rounds: Sequence[Pair], plan: ThroughputPlan) -> RunningDecision:
    """Decide by the rounds so far; each has the groups of a pair of boots, and no boot."""
    groups = [group for each in rounds for group in each.groups]
    reasons = [unfit_group(group, plan.unfit) for group in groups]
    fit = [group for group, why in zip(groups, reasons, strict=True) if not why]
    void = Counter(filter(None, reasons))
    least, most = plan.against.pairs
    cold = warm_up(_slowdowns(PRIMARY, fit))
    if cold:
        void["before the steady state"] = cold
    steady = fit[cold:]
    if len(rounds) < least or len(fit) < FIT_SHARE * len(groups) or len(steady) < FEWEST_BATCHES:
        why = f"{len(rounds)} rounds of blocks, {least} are needed"
        if len(rounds) >= least:
            why = too_few(void, len(groups), "groups of four blocks")
        unknown = Decision(Conclusion.INCONCLUSIVE, why, void=dict(void))
        return RunningDecision(unknown, settled=False)
    measured = {name: batch_mean(_slowdowns(name, steady)) for name in SLOWDOWNS}
    with_boots = {name: _widened(name, mean, plan) for name, mean in measured.items()}
    alpha, beta = (
        spend(error, (least, most), len(rounds)) for error in (plan.odds.alpha, plan.odds.beta)
    )
    slower = conclude(with_boots, plan.against.margin, (alpha, beta), dict(void), _about(plan))
    if slower.answer is Conclusion.REGRESSION:
        return RunningDecision(slower, settled=True)
    at_last = spend(plan.odds.alpha, (least, most), most)
    hopeless = with_boots[PRIMARY].above(at_last) <= 0
    return _not_slower(measured, plan, (alpha, beta), dict(void), hopeless=hopeless)


def _not_slower(
    measured: dict[str, Mean],
    plan: ThroughputPlan,
    errors: tuple[float, float],
    void: dict[str, int],
    *,
    hopeless: bool,
) -> RunningDecision:
    """Decide between servers whose difference is no more than boots of one bundle may have.

    `hopeless`: the last look would not call it a regression either, by the blocks so far.
    """
    alpha, beta = errors
    primary = measured[PRIMARY]
    if primary.below(beta) < -math.log1p(-plan.against.margin):
        decision = Decision(Conclusion.NO_REGRESSION, _about(plan), measured, errors, void)
        return RunningDecision(decision, settled=True)
    slower = primary.above(alpha) > 0
    why = _about(plan)
    if slower:
        why = f"this server is slower, by no more than two boots of one bundle may differ; {why}"
    decision = Decision(Conclusion.INCONCLUSIVE, why, measured, errors, void)
    negligible = primary.error < NEGLIGIBLE * plan.against.pair_sd.of(PRIMARY)
    return RunningDecision(decision, settled=slower and negligible and hopeless)


def batch_mean(values: Sequence[float]) -> Mean:
    """Return the mean of a series whose values follow one another, by batch means.

    At least `FEWEST_BATCHES` values.
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
    """Return what the blocks of two running servers cannot say."""
    sd = plan.against.pair_sd.of(PRIMARY)
    return (
        "of these two running servers, each one boot: other boots of the same bundles would "
        f"differ from this by about {sd:.1%} (sd), which is not measured here"
    )
