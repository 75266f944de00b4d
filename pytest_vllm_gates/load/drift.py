"""The drift of a figure over a soak: Sen's slope with its interval, robust against outliers.

P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968): the
median of the slopes between all pairs of points, and an interval from the distribution of Kendall's
tau. It takes the points' scatter to be independent of one another; blocks of seconds nearly are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.load.types import SoakBlock

CONFIDENCE = 0.95
FEWEST_POINTS = 8
WARM_UP = 0.2
"""The share of a soak at its beginning that is not judged: caches and pools still fill."""
MIB = 2**20


@dataclass(frozen=True)
class SoakDrift:
    """By how much a figure changes over the whole of a soak, in its own unit."""

    estimate: float
    low: float
    high: float
    level: float
    """The median of the figure."""


def drift(times: Sequence[float], values: Sequence[float]) -> SoakDrift | None:
    """Return how a figure drifts; None for too few points."""
    from scipy import stats  # noqa: PLC0415 - half a second of import, for a soak alone

    if len(values) < FEWEST_POINTS:
        return None
    slope, _, low, high = stats.theilslopes(values, times, alpha=CONFIDENCE)
    took = times[-1] - times[0]
    return SoakDrift(slope * took, low * took, high * took, float(sorted(values)[len(values) // 2]))


def settled(blocks: Sequence[SoakBlock]) -> Sequence[SoakBlock]:
    """Return the blocks after the warm-up."""
    return blocks[round(WARM_UP * len(blocks)) :]


def throughput(blocks: Sequence[SoakBlock]) -> SoakDrift | None:
    """Return how tokens per second drift."""
    steady = settled(blocks)
    return drift([block.at_s for block in steady], [block.output_tokens_per_s for block in steady])


def memory(blocks: Sequence[SoakBlock]) -> SoakDrift | None:
    """Return how the server's resident memory drifts, in bytes; None if it was not measured."""
    steady = [block for block in settled(blocks) if block.memory_bytes is not None]
    return drift(
        [block.at_s for block in steady], [float(block.memory_bytes or 0) for block in steady]
    )


def losing(soak_drift: SoakDrift, allowed: float, over: str = "soak") -> str:
    """Return what is lost if all of the interval is beyond the allowed share; else ''.

    `over` is the unit of time of the figures.
    """
    lost = -soak_drift.high / soak_drift.level
    if lost <= allowed:
        return ""
    return (
        f"{-soak_drift.estimate / soak_drift.level:.0%} of {soak_drift.level:.0f} tokens a second "
        f"are lost over the {over} (at least {lost:.0%}, with {CONFIDENCE:.0%} confidence), "
        f"{allowed:.0%} may be"
    )


def may_be_losing(soak_drift: SoakDrift, allowed: float, over: str = "soak") -> str:
    """Return why it is undecided whether too much is lost; '' if it is decided."""
    most = -soak_drift.low / soak_drift.level
    if most <= allowed:
        return ""
    return (
        f"up to {most:.0%} of the tokens a second may be lost over the {over} and as little as "
        f"{-soak_drift.high / soak_drift.level:.0%}: make the {over} longer"
    )


def growing(soak_drift: SoakDrift, allowed_mib: float, over: str = "soak") -> str:
    """Return by how much memory grows if all of the interval is beyond the limit; else ''."""
    if soak_drift.low <= allowed_mib * MIB:
        return ""
    return (
        f"the server's memory grows by {soak_drift.estimate / MIB:.0f} MiB over the {over} (at "
        f"least {soak_drift.low / MIB:.0f} MiB, with {CONFIDENCE:.0%} confidence), "
        f"{allowed_mib:.0f} MiB may be: it will be killed one day"
    )
