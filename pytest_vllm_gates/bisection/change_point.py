"""Finds the place in a row of releases where the outcome changes from good to bad.

Outcomes that repeat are searched by halving. For outcomes that are wrong at a known rate, a
posterior over the change points is updated: each step tests the position that halves the
probability (M. Horstein, "Sequential transmission using noiseless feedback", IEEE Transactions on
Information Theory 9(3), 1963; R. Karp and R. Kleinberg, "Noisy binary search and its
applications", SODA 2007).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from pytest_vllm_gates.bisection.types import TrialAnswer

At = Callable[[int], TrialAnswer]
"""Returns the outcome of one more trial at a position."""
BAD, GOOD = TrialAnswer.BAD, TrialAnswer.GOOD
MOST_TRIALS = 200
GIVE_UP_AFTER = 2
"""Inconclusive trials after which a noisy position is skipped."""


@dataclass(frozen=True)
class ChangePoint:
    """The last good and the first bad position; the positions between could not be judged."""

    last_good: int
    first_bad: int
    confidence: float = 1.0


def repeatable(count: int, at: At) -> ChangePoint:
    """Return the change between position 0, which is good, and `count - 1`, which is bad.

    Tests each position once, at most ceil(log2(count - 1)) positions if all can be judged.
    """
    low, high = 0, count - 1
    untried = set(range(1, high))
    while candidates := [position for position in untried if low < position < high]:
        position = min(candidates, key=lambda each: (abs(each - (low + high) / 2), each))
        untried.discard(position)
        answer = at(position)
        if answer is BAD:
            high = position
        elif answer is GOOD:
            low = position
    return ChangePoint(low, high)


def noisy(count: int, at: At, *, error: float, doubt: float) -> ChangePoint:
    """Return the change where one trial in `1 / error` is wrong, with a probability of error.

    Ends when the probability of all other change points is at most `doubt`, or after
    `MOST_TRIALS` trials with the most probable one.
    """
    # weights[c]: that position c is the first bad one.
    weights = dict.fromkeys(range(1, count), 1.0 / (count - 1))
    silent: dict[int, int] = {}
    for _ in range(MOST_TRIALS):
        open_positions = [
            position for position in range(1, count - 1) if silent.get(position, 0) < GIVE_UP_AFTER
        ]
        best, probability = _likeliest(weights, open_positions, count)
        if probability >= 1 - doubt or not open_positions:
            break
        position = min(
            open_positions,
            key=lambda each: abs(sum(weights[c] for c in weights if c <= each) - 0.5),
        )
        answer = at(position)
        if answer is TrialAnswer.INCONCLUSIVE:
            silent[position] = silent.get(position, 0) + 1
            continue
        for first in weights:
            agrees = (answer is BAD) == (first <= position)
            weights[first] *= 1 - error if agrees else error
        total = sum(weights.values())
        weights = {first: weight / total for first, weight in weights.items()}
    best, probability = _likeliest(weights, open_positions, count)
    return ChangePoint(*best, probability)


def _likeliest(
    weights: dict[int, float], open_positions: list[int], count: int
) -> tuple[tuple[int, int], float]:
    """Return the likeliest step between two neighbouring positions that can be judged."""
    marks = [0, *open_positions, count - 1]
    steps = {
        (low, high): sum(weights[first] for first in range(low + 1, high + 1))
        for low, high in pairwise(marks)
    }
    best = max(steps, key=lambda step: steps[step])
    return best, steps[best]
