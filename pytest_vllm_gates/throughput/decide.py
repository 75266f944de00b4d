"""Decides whether a server is slower: REGRESSION, NO REGRESSION or INCONCLUSIVE.

Figures are slowdowns: the logarithm of how many times longer the same work takes. 0 is equally
fast, the margin is the acceptable loss. NO REGRESSION: surely slower by less than the margin
(non-inferiority). REGRESSION: surely slower, and not surely by less than the margin. A result
between the two is measured further, or INCONCLUSIVE if that is not allowed.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.throughput import host_bound
from pytest_vllm_gates.throughput.decision import (
    PRIMARY,
    Conclusion,
    Decision,
    changed,
    too_few,
)
from pytest_vllm_gates.throughput.statistics import (
    Mean,
    Prior,
    difference,
    holm,
    mean_of,
    spend,
    warm_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.catalog.plans import (
        Block,
        BlockGroup,
        Pair,
        Scatter,
        ThroughputPlan,
        Unfit,
    )

FLOOR_S = 1e-6
"""The clock's resolution; an answer that comes in one piece has no time between tokens."""
SLOWDOWNS: dict[str, Callable[[Block], float]] = {
    PRIMARY: lambda block: -math.log(block.output_tokens_per_s),
    "ttft_s": lambda block: math.log(max(block.ttft_s, FLOOR_S)),
    "itl_s": lambda block: math.log(max(block.itl_s, FLOOR_S)),
}
TRIMMED = 0.1
"""The share of blocks left out of a mean at each end: disturbances of the machine."""
FIT_SHARE = 0.5
"""The least share of a boot's blocks that must be fit for the boot to count."""


def unfit(block: Block, limits: Unfit) -> str:
    """Return why a block does not measure the server; '' if it does."""
    if block.faults:
        return block.faults[0]
    if block.steal > limits.steal:
        return "the machine's host gave its processor time to other machines"
    if block.late_s > limits.client_late * block.took_s:
        return "the client sent its requests late"
    return ""


def unfit_alone(block: Block, limits: Unfit) -> str:
    """Return why a block cannot be compared with a block of another day; '' if it can."""
    if why := unfit(block, limits):
        return why
    if (block.others or 0.0) > limits.others:
        return "other processes used the processors"
    return ""


def unfit_group(group: BlockGroup, limits: Unfit) -> str:
    """Return why four blocks do not show their servers' difference; '' if they do."""
    for block in (*group.ours, *group.theirs):
        if why := unfit(block, limits):
            return why
    if _share_difference(group, "cached") > limits.cached:
        return "the servers had different shares of the prompts in their caches"
    # A load that slows both servers equally does not change their difference.
    if _share_difference(group, "others") > limits.others:
        return "other processes took more processor time from one server"
    return ""


def boot_slowdowns(
    blocks: Sequence[Block], plan: ThroughputPlan, *, by_speed: bool
) -> tuple[dict[str, float], dict[str, int]]:
    """Return a boot's figures as slowdowns, and the blocks left out by reason.

    `by_speed`: relative to the speed of the machine itself. Empty if too few blocks are fit.
    """
    reasons = [unfit_alone(block, plan.unfit) for block in blocks]
    fit = [block for block, why in zip(blocks, reasons, strict=True) if not why]
    void = Counter(filter(None, reasons))
    if len(fit) < FIT_SHARE * plan.baseline.blocks:
        return {}, void
    series = {name: [_slowdown(name, block, by_speed) for block in fit] for name in SLOWDOWNS}
    cold = warm_up(series[PRIMARY])
    if cold:
        void["before the steady state"] = cold
    return {name: trimmed(values[cold:]) for name, values in series.items()}, void


def fastest(rounds: Sequence[Decision]) -> Decision:
    """Return the decision on the fastest round of a boot; the last one if none was compared.

    Other load on a machine only slows a server down: its fastest round is the most accurate.
    """
    compared = [decision for decision in rounds if PRIMARY in decision.means]
    return min(compared, key=lambda decision: decision.means[PRIMARY].value, default=rounds[-1])


def against_baseline(
    now: Sequence[Block], recorded: Sequence[Sequence[Block]], plan: ThroughputPlan
) -> Decision:
    """Compare one round of a boot with recorded boots of the same work on the same machine."""
    by_speed = all(block.speed is not None for blocks in (now, *recorded) for block in blocks)
    figures, void = boot_slowdowns(now, plan, by_speed=by_speed)
    if not figures:
        return Decision(Conclusion.INCONCLUSIVE, too_few(void, len(now)), void=void)
    others = [boot_slowdowns(blocks, plan, by_speed=by_speed)[0] for blocks in recorded]
    known = [slowdowns for slowdowns in others if slowdowns]
    if not known:
        return Decision(
            Conclusion.INCONCLUSIVE, "no recorded boot has enough fit blocks", void=void
        )
    scatter, note = host_bound.of_boots([now, *recorded], plan)
    priors = _priors(scatter, plan.baseline.degrees)
    means = {
        name: difference(value, [slowdowns[name] for slowdowns in known], priors[name])
        for name, value in figures.items()
    }
    # Each round may pass the server, so the rounds share the error of a wrong pass.
    errors = (plan.odds.alpha, plan.odds.beta / plan.baseline.rounds)
    may_cost = plan.baseline.alarm_above
    return conclude(means, plan.baseline.margin, errors, void, note, alarm_above=may_cost)


def pair_slowdowns(pair: Pair, plan: ThroughputPlan) -> tuple[dict[str, float], dict[str, int]]:
    """Return the slowdown of our boot of a pair, and the groups left out by reason."""
    reasons = [unfit_group(group, plan.unfit) for group in pair.groups]
    fit = [group for group, why in zip(pair.groups, reasons, strict=True) if not why]
    void = Counter(filter(None, reasons))
    if len(fit) < FIT_SHARE * plan.against.groups:
        return {}, void
    series = {
        name: [
            statistics.fmean(map(of, group.ours)) - statistics.fmean(map(of, group.theirs))
            for group in fit
        ]
        for name, of in SLOWDOWNS.items()
    }
    cold = warm_up(series[PRIMARY])
    if cold:
        void["before the steady state"] = cold
    return {name: trimmed(values[cold:]) for name, values in series.items()}, void


def against_lane(pairs: Sequence[Pair], plan: ThroughputPlan) -> Decision:
    """Decide by the pairs so far; after INCONCLUSIVE another pair may be measured."""
    void: Counter[str] = Counter()
    known = []
    for pair in pairs:
        figures, left_out = pair_slowdowns(pair, plan)
        void.update(left_out)
        if figures:
            known.append(figures)
    least, most = plan.against.pairs
    if len(known) < least:
        why = f"{len(known)} pairs of boots have enough fit blocks, {least} are needed"
        if len(known) < len(pairs):
            made = sum(len(pair.groups) for pair in pairs)
            why += f": {too_few(void, made, 'groups of four blocks')}"
        return Decision(Conclusion.INCONCLUSIVE, why, void=void)
    scatter, note = host_bound.of_pairs(pairs, plan)
    priors = _priors(scatter, plan.against.degrees)
    means = {
        name: mean_of([slowdowns[name] for slowdowns in known], priors[name]) for name in SLOWDOWNS
    }
    errors = tuple(
        spend(error, (least, most), len(known)) for error in (plan.odds.alpha, plan.odds.beta)
    )
    return conclude(means, plan.against.margin, errors, void, note)


def trimmed(values: Sequence[float]) -> float:
    """Return the mean without a tenth of the values at each end."""
    cut = int(TRIMMED * len(values))
    ordered = sorted(values)
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def _priors(scatter: Scatter, degrees: int) -> dict[str, Prior]:
    return {name: Prior(scatter.of(name), degrees) for name in SLOWDOWNS}


def conclude(
    means: dict[str, Mean],
    margin: float,
    errors: tuple[float, ...],
    void: dict[str, int],
    note: str,
    *,
    alarm_above: float = 0.0,
) -> Decision:
    """Judge the primary figure, and which secondary figures are surely worse (Holm).

    `alarm_above`: the share that may be lost for reasons outside the server.
    """
    alpha, beta = errors
    may_lose, unblamed = -math.log1p(-margin), -math.log1p(-alarm_above)
    secondary = {name: mean for name, mean in means.items() if name != PRIMARY}
    odds = {name: mean.odds(unblamed) for name, mean in secondary.items()}
    worse = holm(odds, alpha)
    worse = [name for name in worse if means[name].below(beta) >= may_lose]
    worse_figures = [
        f"{name} is surely worse ({changed(name, means[name].value)})" for name in worse
    ]
    why = ", ".join([*worse_figures, note] if note else worse_figures)
    primary = means[PRIMARY]
    if primary.below(beta) < may_lose:
        answer = Conclusion.REGRESSION if worse else Conclusion.NO_REGRESSION
    elif primary.above(alpha) > unblamed or worse:
        answer = Conclusion.REGRESSION
    else:
        answer = Conclusion.INCONCLUSIVE
    # Bonferroni's bound for the secondary figures; Holm rejects the smallest first.
    alarm = min(primary.odds(unblamed), len(odds) * min(odds.values(), default=1.0)) / alpha
    return Decision(answer, why, means, (alpha, beta), dict(void), float(f"{alarm:.4g}"))


def _slowdown(name: str, block: Block, by_speed: bool) -> float:
    slowdown = SLOWDOWNS[name](block)
    return slowdown + math.log(block.speed) if by_speed and block.speed else slowdown


def _share_difference(group: BlockGroup, share: str) -> float:
    """Return the difference in a share between the servers' blocks; 0 if any block lacks it."""
    ours, theirs = (
        [getattr(block, share) for block in blocks] for blocks in (group.ours, group.theirs)
    )
    if None in (*ours, *theirs):
        return 0.0
    return abs(statistics.fmean(ours) - statistics.fmean(theirs))
