"""Decides whether a server is slower: REGRESSION, NO REGRESSION or INCONCLUSIVE.

Figures are slowdowns: the logarithm of how many times longer the same work takes. 0 is equally
fast, the margin is what may be lost. NO REGRESSION: surely slower by less than the margin
(non-inferiority). REGRESSION: surely slower, and not surely by less than the margin. A result
between the two is measured further, or INCONCLUSIVE where that is not allowed.
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
"""The clock's resolution; answers that come in one piece have no time between tokens."""
SLOWDOWNS: dict[str, Callable[[Block], float]] = {
    PRIMARY: lambda block: -math.log(block.output_tokens_per_s),
    "ttft_s": lambda block: math.log(max(block.ttft_s, FLOOR_S)),
    "itl_s": lambda block: math.log(max(block.itl_s, FLOOR_S)),
}
TRIMMED = 0.1
"""The share of blocks left out of a mean at either end: moments of the machine's own."""
FIT_SHARE = 0.5
"""So many of a boot's blocks have to be fit for it to count."""


def unfit(block: Block, limits: Unfit) -> str:
    """Return why a block does not measure the server; '' where it does."""
    if block.faults:
        return block.faults[0]
    if block.steal > limits.steal:
        return "the machine's host gave its time to others"
    if block.late_s > limits.client_late * block.took_s:
        return "the client sent its requests late"
    return ""


def unfit_alone(block: Block, limits: Unfit) -> str:
    """Return why a block cannot be compared with one of another day; '' where it can."""
    if why := unfit(block, limits):
        return why
    if (block.others or 0.0) > limits.others:
        return "other processes took the processors' time"
    return ""


def unfit_group(group: BlockGroup, limits: Unfit) -> str:
    """Return why four blocks do not show their servers' difference; '' where they do."""
    for block in (*group.ours, *group.theirs):
        if why := unfit(block, limits):
            return why
    if _share_difference(group, "cached") > limits.cached:
        return "the servers had unlike shares of the prompts in their caches"
    # What took from both alike makes no difference between them.
    if _share_difference(group, "others") > limits.others:
        return "other processes took more of the processors' time from one server"
    return ""


def boot_slowdowns(
    blocks: Sequence[Block], plan: ThroughputPlan, *, by_speed: bool
) -> tuple[dict[str, float], dict[str, int]]:
    """Return a boot's figures as slowdowns, and the blocks left out by reason.

    `by_speed`: relative to how fast the machine itself was. Empty where too few blocks are fit.
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
    """Return the decision on the fastest round of a boot; the last where none was compared.

    What else goes on in a machine only slows a server: its fastest round shows it best.
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
    # Each round may pass the server: they share what may pass wrongly.
    errors = (plan.odds.alpha, plan.odds.beta / plan.baseline.rounds)
    may_cost = plan.baseline.alarm_above
    return conclude(means, plan.baseline.margin, errors, void, note, alarm_above=may_cost)


def pair_slowdowns(pair: Pair, plan: ThroughputPlan) -> tuple[dict[str, float], dict[str, int]]:
    """Return by how much our boot of a pair is slower, and the groups left out by reason."""
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
    """Decide by the pairs so far; after INCONCLUSIVE another may be measured."""
    void: Counter[str] = Counter()
    known = []
    for pair in pairs:
        figures, left_out = pair_slowdowns(pair, plan)
        void.update(left_out)
        if figures:
            known.append(figures)
    least, most = plan.against.pairs
    if len(known) < least:
        why = f"{len(known)} pairs of boots with enough fit blocks, {least} are needed"
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
    """Return the mean without the tenth of the values at either end."""
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
    """Judge the primary figure, and of the others which are surely worse (Holm).

    `alarm_above`: the share that may be lost without the server's doing.
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
    # Bonferroni's bound for the secondary figures, of which Holm lets fall the first first.
    alarm = min(primary.odds(unblamed), len(odds) * min(odds.values(), default=1.0)) / alpha
    return Decision(answer, why, means, (alpha, beta), dict(void), float(f"{alarm:.4g}"))


def _slowdown(name: str, block: Block, by_speed: bool) -> float:
    slowdown = SLOWDOWNS[name](block)
    return slowdown + math.log(block.speed) if by_speed and block.speed else slowdown


def _share_difference(group: BlockGroup, share: str) -> float:
    """Return by how much a share of the servers' blocks differs; 0 where it is not known of all."""
    ours, theirs = (
        [getattr(block, share) for block in blocks] for blocks in (group.ours, group.theirs)
    )
    if None in (*ours, *theirs):
        return 0.0
    return abs(statistics.fmean(ours) - statistics.fmean(theirs))
