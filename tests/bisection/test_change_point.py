"""The change along a row of releases is found, with noise at the stated odds."""

from __future__ import annotations

import math
import random

import pytest

from pytest_vllm_gates.bisection import change_point
from pytest_vllm_gates.bisection.types import TrialAnswer

GOOD, BAD, INCONCLUSIVE = TrialAnswer.GOOD, TrialAnswer.BAD, TrialAnswer.INCONCLUSIVE


@pytest.mark.parametrize("count", [2, 3, 6, 17, 64])
def test_halving_finds_every_change_in_log2_boots(count: int) -> None:
    for first in range(1, count):
        asked: list[int] = []

        def at(position: int, first: int = first, asked: list[int] = asked) -> TrialAnswer:
            asked.append(position)
            return BAD if position >= first else GOOD

        found = change_point.repeatable(count, at)
        assert (found.last_good, found.first_bad) == (first - 1, first)
        assert len(asked) <= math.ceil(math.log2(count))


def test_positions_without_an_answer_are_left_between_the_two() -> None:
    found = change_point.repeatable(
        8, lambda at: INCONCLUSIVE if at in (3, 4) else BAD if at > 4 else GOOD
    )
    assert (found.last_good, found.first_bad) == (2, 5)


def test_noisy_change_keeps_the_stated_error_rate() -> None:
    dice = random.Random(36)  # noqa: S311
    wrong = 0
    for _ in range(300):
        first = dice.randint(1, 15)

        def at(position: int, first: int = first) -> TrialAnswer:
            bad = position >= first
            return BAD if bad != (dice.random() < 0.1) else GOOD

        found = change_point.noisy(16, at, error=0.1, doubt=0.01)
        wrong += (found.last_good, found.first_bad) != (first - 1, first)
        assert found.confidence >= 0.99
    assert wrong <= 9  # 3 are expected; more than 9 in 300 happen once in 1,000 at 1 %


def test_noisy_position_that_stays_silent_is_left_alone() -> None:
    found = change_point.noisy(
        6,
        lambda at: INCONCLUSIVE if at == 3 else BAD if at > 3 else GOOD,
        error=0.1,
        doubt=0.01,
    )
    assert (found.last_good, found.first_bad) == (2, 4)
