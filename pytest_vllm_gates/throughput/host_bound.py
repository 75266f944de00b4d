"""Widens the scatter of boots whose GPUs wait for the machine's processor.

A GPU that is busy for a small part of the time waits for the processor that feeds it. Its figures
then vary with the processor's speed from minute to minute, more than figures of busy GPUs.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.plans import Scatter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.catalog.plans import Block, Pair, ThroughputPlan

UTILIZATION = "gpu_utilization"
BOOTS_OF_A_PAIR = 2


def busy(blocks: Iterable[Block]) -> float | None:
    """Return the share of the time that the GPUs were busy; None if none was sampled."""
    shares = [block.context[UTILIZATION] for block in blocks if UTILIZATION in block.context]
    return statistics.fmean(shares) if shares else None


def of_boots(boots: Sequence[Iterable[Block]], plan: ThroughputPlan) -> tuple[Scatter, str]:
    """Return the scatter of these boots, and why it is wider than planned; '' if it is not."""
    known = plan.baseline.boot_sd
    if (waiting := _waited(boots, plan)) is None:
        return known, ""
    share, bound = waiting
    return _wider(known, bound, 1.0), _why(share)


def of_pairs(pairs: Sequence[Pair], plan: ThroughputPlan) -> tuple[Scatter, str]:
    """Return the scatter of these pairs, and why it is wider than planned; '' if it is not.

    Side by side, the processor slows both servers alike; one after the other, each has its own
    slowdown.
    """
    known = plan.against.pair_sd
    apart = [
        [block for group in pair.groups for block in (*group.ours, *group.theirs)]
        for pair in pairs
        if not pair.side_by_side
    ]
    if (waiting := _waited(apart, plan)) is None:
        return known, ""
    share, bound = waiting
    return _wider(known, bound, math.sqrt(BOOTS_OF_A_PAIR)), _why(share)


def _waited(boots: Sequence[Iterable[Block]], plan: ThroughputPlan) -> tuple[float, Scatter] | None:
    """Return the smallest busy share of a boot's GPUs, and its scatter; None if it is enough."""
    if plan.host_bound is None:
        return None
    least = min((share for boot in boots if (share := busy(boot)) is not None), default=None)
    if least is None or least >= plan.host_bound.gpu_utilization:
        return None
    return least, plan.host_bound.boot_sd


def _wider(known: Scatter, bound: Scatter, times: float) -> Scatter:
    return Scatter(
        **{name: max(known.of(name), times * bound.of(name)) for name in Scatter.model_fields}
    )


def _why(share: float) -> str:
    return (
        f"its GPU was busy {share:.0%} of the time and waited for the machine's processor, so "
        "this measures the processor's speed"
    )
