"""A warm-up is found where there is one, and none where there is none."""

from __future__ import annotations

import random

import pytest

from pytest_vllm_gates.throughput.statistics import warm_up


def series(cold: int, count: int = 40) -> list[float]:
    chance = random.Random(3)  # noqa: S311 - noise
    return [chance.gauss(3.0 if at < cold else 1.0, 0.05) for at in range(count)]


@pytest.mark.parametrize("cold", [3, 8, 15])
def test_a_warm_up_is_left_out(cold: int) -> None:
    assert cold <= warm_up(series(cold)) <= cold + 3


def test_a_steady_series_is_kept() -> None:
    assert warm_up(series(0)) <= 4


def test_never_more_than_half_is_left_out() -> None:
    assert warm_up([float(number) for number in range(40)]) == 20


def test_few_values_are_all_kept() -> None:
    assert warm_up([9.0, *[1.0] * 6]) == 0
    assert warm_up([9.0, *[1.0] * 7]) == 1
