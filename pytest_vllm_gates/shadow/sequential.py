"""Always-valid statistics: tests and bounds that stay valid however often somebody looks at them.

Each test is an e-process: under its null hypothesis a nonnegative supermartingale that begins at 1.
By Ville's inequality (J. Ville, 1939) the chance that it ever reaches 1/alpha is at most alpha, so
that one may look after every pair and stop whenever one likes.

- `log_excess`: "the chance of an event is at most `rate`", by a mixture of likelihood ratios over
  all higher rates (H. Robbins, Statistical methods related to the law of the iterated logarithm,
  Ann. Math. Statist. 41, 1970; S. Howard, A. Ramdas, J. McAuliffe and J. Sekhon, Time-uniform,
  nonparametric, nonasymptotic confidence sequences, Ann. Statist. 49, 2021, the beta-binomial
  mixture). The chances may change from pair to pair as long as each is at most `rate`.
- `log_below`: "the mean of differences in {-1, 0, 1} is at least `margin`", by betting against it
  (I. Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by betting, J. R.
  Statist. Soc. B 86, 2024), with the wealth averaged over a fixed grid of bets.
- `quantile_ranks`: a confidence sequence for a quantile, by `log_excess` on the numbers of values
  below and above it (S. Howard and A. Ramdas, Sequential estimation of quantiles with applications
  to A/B testing and best-arm identification, Bernoulli 28, 2022). It needs values whose quantile
  does not drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Callable

SPAN = 16.0
"""Standard deviations around its mean within which the limit of a count is searched first."""
STEPS = 24
"""Halvings of the range in which a bound of a rate is searched."""
MOST_TRIALS = 10**9
"""No forecast goes beyond so many trials."""
BETS = tuple(float(bet) for bet in np.geomspace(0.002, 0.98, 24))
"""The share of its wealth that each bettor of `log_below` stakes every time."""


@dataclass(frozen=True)
class RateMixture:
    """The density of the rates that a mixture bets on: a beta density, cut off below."""

    a: float
    b: float


EVEN = RateMixture(1.0, 1.0)
"""All rates weigh about the same."""
BY_ORDERS = RateMixture(0.01, 1.0)
"""All orders of magnitude weigh about the same: for rates known only by their order."""


def log_excess(events: int, trials: int, rate: float, mixture: RateMixture = EVEN) -> float:
    """Return the logarithm of the evidence that an event's chance is above `rate`, in nats.

    `rate` is between 0 and 1, both excluded.
    """
    return float(_log_excess(np.asarray(events, dtype=float), trials, rate, mixture))


def _log_excess(
    events: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    trials: int,
    rate: float,
    mixture: RateMixture,
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    a, b = mixture.a + events, mixture.b + trials - events
    with np.errstate(divide="ignore"):
        weighted = np.log(special.betaincc(a, b, rate)) + special.betaln(a, b)
    log_weight = math.log(float(special.betaincc(mixture.a, mixture.b, rate)))
    log_weight += float(special.betaln(mixture.a, mixture.b))
    fair = events * math.log(rate) + (trials - events) * math.log1p(-rate)
    return np.asarray(weighted - log_weight - fair)


def log_below(minus: int, plus: int, trials: int, margin: float) -> float:
    """Return the logarithm of the evidence that a mean difference is below `margin`, in nats.

    `plus` of `trials` differences are 1, `minus` are -1, and the others 0. `margin` is from 0 to 1.
    """
    bets = np.asarray(BETS)
    zero = trials - plus - minus
    wealth = (
        plus * np.log1p(bets * (margin - 1))
        + zero * np.log1p(bets * margin)
        + minus * np.log1p(bets * (margin + 1))
    )
    # The logarithm of the mean of exp(wealth); scipy's logsumexp takes ten times as long.
    most = wealth.max()
    return float(most + np.log(np.exp(wealth - most).mean()))


@lru_cache(maxsize=1024)
def upper_difference(minus: int, plus: int, trials: int, alpha: float) -> float:
    """Return the bound that a mean difference is below, at `1 - alpha`; 1 where there is none."""
    goal = -math.log(alpha)
    if log_below(minus, plus, trials, 1.0) < goal:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-6:  # noqa: PLR2004 - a share of answers, to a millionth
        middle = (low + high) / 2
        low, high = (
            (low, middle) if log_below(minus, plus, trials, middle) >= goal else (middle, high)
        )
    return high


@lru_cache(maxsize=1024)
def rate_bounds(events: int, trials: int, alpha: float) -> tuple[float, float]:
    """Return an event's chance bounds at `1 - alpha`, which stay valid however often one looks."""
    if not trials:
        return 0.0, 1.0
    goal, share, others = -math.log(alpha / 2), events / trials, trials - events
    lower, upper = 0.0, 1.0
    if events:
        lower = _last(share, 0.0, lambda rate: log_excess(events, trials, rate) < goal)
    if others:
        upper = _last(share, 1.0, lambda rate: log_excess(others, trials, 1 - rate) < goal)
    return lower, upper


def _last(inside: float, outside: float, allowed: Callable[[float], bool]) -> float:
    """Return the rate farthest from `inside` that is allowed, or shortly after it."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return outside


@lru_cache(maxsize=4096)
def most_events(trials: int, rate: float, alpha: float) -> int:
    """Return the most events of a chance of at most `rate` that `1 - alpha` allows at `trials`."""
    goal = -math.log(alpha)
    sd = math.sqrt(trials * rate * (1 - rate))
    low = min(trials, max(0, math.floor(trials * rate)))
    high = min(trials, math.ceil(trials * rate + SPAN * sd + SPAN))
    counts = np.arange(low, high + 1, dtype=float)
    allowed = counts[_log_excess(counts, trials, rate, EVEN) < goal]
    return int(allowed[-1]) if len(allowed) else low


def quantile_ranks(trials: int, quantile: float, alpha: float) -> tuple[int | None, int | None]:
    """Return the ranks, from 0, of the values between which a quantile lies, at `1 - alpha`.

    A rank is None if there are too few values to bound the quantile on that side.
    """
    if not trials:
        return None, None
    below = most_events(trials, quantile, alpha / 2)
    above = most_events(trials, 1 - quantile, alpha / 2)
    lower, upper = trials - 1 - above, below
    return (lower if lower >= 0 else None), (upper if upper < trials else None)


def trials_until(reached: Callable[[int], bool], trials: int) -> int | None:
    """Return at how many trials, from `trials` on, `reached` is true; None where it never is.

    `reached` has to stay true once it is. The answer is exact to a hundredth.
    """
    low, high = trials, max(trials, 1)
    while not reached(high):
        low, high = high, 2 * high
        if high > MOST_TRIALS:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
