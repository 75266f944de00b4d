"""Compares a figure's quantiles between the two sides by their confidence sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.shadow import sequential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.shadow.settings import ComparedFigure
    from pytest_vllm_gates.shadow.tally import Values

LEAST_SHARE = 0.05
"""A figure that fewer answers have does not delay PROMOTE."""


@dataclass(frozen=True)
class QuantileBounds:
    """The values between which a quantile lies; None on a side without a bound."""

    lower: float | None
    value: float
    upper: float | None


@dataclass(frozen=True)
class FigureState:
    """The bounds of one quantile of a figure."""

    name: str
    quantile: float
    settings: ComparedFigure
    values: Values
    levels: tuple[float, float]
    """The chances of an error: of REJECT for this quantile, and of PROMOTE."""
    stable: QuantileBounds
    canary: QuantileBounds
    """The bounds at the level of REJECT."""

    @property
    def count(self) -> int:
        """How many pairs have the figure."""
        return len(self.values.stable)

    def is_weighty(self, pairs: int) -> bool:
        """Return whether enough of the pairs have it."""
        return self.count >= LEAST_SHARE * pairs

    @property
    def rejected(self) -> bool:
        """Whether the canary is worse by more than the ratio, or lower if both count."""
        ratio, besides = self.settings.worse, self.settings.besides
        slower = _exceeds(self.canary.lower, self.stable.upper, ratio, besides)
        return slower or (
            self.settings.either and _exceeds(self.stable.lower, self.canary.upper, ratio)
        )

    @property
    def fine(self) -> bool:
        """Whether the canary is within the ratio for certain."""
        return self._fine_at(1.0)

    def _fine_at(self, scale: float) -> bool:
        stable, canary = (
            bounds_of(values, self.quantile, self.levels[1] / 2, scale)
            for values in (self.values.stable, self.values.canary)
        )
        ratio = self.settings.worse
        within = _within(canary.upper, stable.lower, ratio, self.settings.besides)
        return within and (not self.settings.either or _within(stable.upper, canary.lower, ratio))

    def until_promote(self, pairs: int) -> int | None:
        """Return about how many more pairs of all make it certain; None if no number does."""
        if not self._fine_at(math.inf):
            return None
        reached = sequential.trials_until(
            lambda trials: self._fine_at(trials / max(1, self.count)), self.count
        )
        if reached is None:
            return None
        return math.ceil((reached - self.count) * pairs / max(1, self.count))

    @property
    def reason(self) -> str:
        """The values of both sides and the allowed ratio, in a sentence."""
        name = f"{self.name} p{self.quantile * 100:g}"
        besides = f", and {self.settings.besides:g} more" if self.settings.besides else ""
        return (
            f"{name}: stable {_shown(self.stable)}, canary {_shown(self.canary)}, "
            f"a ratio of {self.settings.worse:g} is allowed{besides}"
        )


def figure_state(
    name: str,
    quantile: float,
    settings: ComparedFigure,
    values: Values,
    levels: tuple[float, float],
) -> FigureState:
    """Return the bounds; `levels` are the chances of an error for REJECT and for PROMOTE."""
    stable, canary = (
        bounds_of(side, quantile, levels[0] / 2) for side in (values.stable, values.canary)
    )
    return FigureState(name, quantile, settings, values, levels, stable, canary)


def bounds_of(
    values: Sequence[float], quantile: float, alpha: float, scale: float = 1.0
) -> QuantileBounds:
    """Return the bounds of a quantile of sorted values, at least one.

    With `scale`, the bounds for so many times as many values of the same distribution.
    """
    count = len(values)
    value = values[min(count - 1, int(quantile * count))]
    if math.isinf(scale):
        return QuantileBounds(value, value, value)
    trials = max(1, round(count * scale))
    lower, upper = sequential.quantile_ranks(trials, quantile, alpha)

    def at(rank: int | None) -> float | None:
        return None if rank is None else values[min(count - 1, rank * count // trials)]

    return QuantileBounds(at(lower), value, at(upper))


def _exceeds(lower: float | None, upper: float | None, ratio: float, besides: float = 0.0) -> bool:
    return lower is not None and upper is not None and lower > upper * ratio + besides


def _within(upper: float | None, lower: float | None, ratio: float, besides: float = 0.0) -> bool:
    return upper is not None and lower is not None and upper <= lower * ratio + besides


def _shown(bounds: QuantileBounds) -> str:
    low, high = ("?" if bound is None else f"{bound:.4g}" for bound in (bounds.lower, bounds.upper))
    return f"{bounds.value:.4g} ({low} to {high})"
