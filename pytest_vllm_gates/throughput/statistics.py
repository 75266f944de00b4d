"""Statistics of a gate: intervals over few boots, errors spent over looks, and the warm-up.

The boot is the unit of replication: boots of the same bundle differ more than blocks within a boot,
so a thousand blocks of one boot do not predict the next boot. The interval is therefore Student's,
over boots. With few boots their own scatter is hardly known; earlier knowledge about the same
machine counts as a number of degrees of freedom (a scaled inverse chi-square prior; Gelman et al.,
Bayesian Data Analysis, 3rd ed., 2.6).

An interval that is examined after every pair of boots would be wrong more often than its level. The
error is spent over the looks by the square of their share (K. Kim and D. L. DeMets, Design and
analysis of group sequential tests based on the type I error spending rate function, Biometrika 74,
1987), and summed (Bonferroni), which is valid for any dependence of the looks.

The warm-up of a series ends by the marginal standard error rule (K. P. White, An effective
truncation heuristic for bias reduction in simulation output, Simulation 69, 1997): leave out as
many values at the beginning as minimise the standard error of the mean of the others, at most
half of them.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

POWER = 2
FEWEST = 8


@dataclass(frozen=True)
class Prior:
    """The known scatter of boots: a standard deviation, with its degrees of freedom."""

    sd: float
    degrees: int


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error and the error's degrees of freedom."""

    value: float
    error: float
    degrees: int

    def below(self, share: float) -> float:
        """Return a bound that is above the true value in all but this share of cases."""
        return self.value + self._reach(share)

    def above(self, share: float) -> float:
        """Return a bound that is below the true value in all but this share of cases."""
        return self.value - self._reach(share)

    def odds(self, true: float = 0.0) -> float:
        """Return the probability of a mean this high if `true` is the true one (one-sided p)."""
        from scipy import special  # noqa: PLC0415 - slow to import; scipy.stats takes 60 MB

        return float(special.stdtr(self.degrees, (true - self.value) / self.error))

    def _reach(self, share: float) -> float:
        from scipy import special  # noqa: PLC0415 - slow to import; scipy.stats takes 60 MB

        return -float(special.stdtrit(self.degrees, share)) * self.error


def scatter(values: Sequence[float], prior: Prior) -> tuple[float, int]:
    """Return one boot's standard deviation, from values and prior, and its degrees of freedom."""
    own = statistics.variance(values) if len(values) > 1 else 0.0
    more = len(values) - 1
    degrees = prior.degrees + more
    return math.sqrt((prior.degrees * prior.sd**2 + more * own) / degrees), degrees


def mean_of(values: Sequence[float], prior: Prior) -> Mean:
    """Return the mean of some boots' figures."""
    sd, degrees = scatter(values, prior)
    return Mean(statistics.fmean(values), sd / math.sqrt(len(values)), degrees)


def difference(value: float, others: Sequence[float], prior: Prior) -> Mean:
    """Return how much the figure of one boot exceeds the figures of others."""
    sd, degrees = scatter(others, prior)
    return Mean(value - statistics.fmean(others), sd * math.sqrt(1 + 1 / len(others)), degrees)


def spend(error: float, looks: tuple[int, int], now: int) -> float:
    """Return the part of an error to spend at the look after `now` of at most `looks[1]` units.

    The first look is after `looks[0]`.
    """
    least, most = looks
    before = 0 if now <= least else now - 1
    return error * ((now / most) ** POWER - (before / most) ** POWER)


def holm(odds: dict[str, float], error: float) -> list[str]:
    """Return the rejected hypotheses, the least likely first, at this error for all together.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    fallen: list[str] = []
    for number, (name, value) in enumerate(sorted(odds.items(), key=lambda pair: pair[1])):
        if value > error / (len(odds) - number):
            break
        fallen.append(name)
    return fallen


def warm_up(values: Sequence[float]) -> int:
    """Return how many values at the beginning are before the steady state, at most half."""
    if len(values) < FEWEST:
        return 0
    errors = []
    for left_out in range(len(values) // 2 + 1):
        steady = values[left_out:]
        errors.append(statistics.pvariance(steady) / len(steady))
    return errors.index(min(errors))
