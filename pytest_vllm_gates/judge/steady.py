"""Where a series comes to its steady state: the marginal standard error rule.

K. P. White, An effective truncation heuristic for bias reduction in simulation output, Simulation
69 (1997), MSER: leave out as many values at the beginning as make the standard error of the mean of
the rest the smallest. Past the middle nothing is left out: too few would be left to be believed.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 8


def warm_up(values: Sequence[float]) -> int:
    """Return how many values at the beginning are not of the steady state, at most half of them."""
    if len(values) < FEWEST:
        return 0
    errors = []
    for left_out in range(len(values) // 2 + 1):
        rest = values[left_out:]
        errors.append(statistics.pvariance(rest) / len(rest))
    return errors.index(min(errors))
