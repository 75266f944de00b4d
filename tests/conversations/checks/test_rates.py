"""A share of valid answers is compared with the recorded one, allowing for chance."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.conversations.checks.tool_calls import (
    LEAST_CHANCE,
    chance_of_fewer,
    golden_text,
    interval,
    parse_golden,
)


@pytest.mark.parametrize(
    ("now", "before", "chance"),
    [
        ((20, 20), (20, 20), 1.0),
        ((0, 20), (0, 20), 1.0),
        ((20, 20), (0, 20), 1.0),
        ((0, 1), (1, 1), 0.5),
        ((0, 20), (20, 20), 1 / comb(40, 20)),
        ((19, 20), (20, 20), 0.5),
        ((1, 5), (4, 5), 26 / 252),
    ],
)
def test_the_chance_is_fishers_exact_test(
    now: tuple[int, int], before: tuple[int, int], chance: float
) -> None:
    assert chance_of_fewer(*now, *before) == pytest.approx(chance)


def test_fewer_valid_answers_are_less_likely() -> None:
    chances = [chance_of_fewer(valid, 20, 20, 20) for valid in range(21)]
    assert chances == sorted(chances)


@pytest.mark.parametrize(
    ("now", "before", "passes"),
    [
        ((20, 20), (20, 20), True),
        ((18, 20), (20, 20), True),
        ((13, 20), (20, 20), True),
        ((10, 20), (20, 20), False),
        ((0, 20), (20, 20), False),
        ((5, 10), (10, 20), True),
        ((10, 200), (20, 20), False),
        ((0, 0), (20, 20), True),
    ],
)
def test_only_rates_beyond_chance_fail(
    now: tuple[int, int], before: tuple[int, int], passes: bool
) -> None:
    assert (chance_of_fewer(*now, *before) >= LEAST_CHANCE) == passes


def test_a_rates_golden_reads_back() -> None:
    assert parse_golden(golden_text(17, 20)) == (17, 20)


@pytest.mark.parametrize("text", ["", "valid = many", "valid = 20", "of = 3\nvalid = 4"])
def test_a_text_without_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no rate such as 'valid = 20'"):
        parse_golden(text)


@pytest.mark.parametrize(
    ("times", "of", "low", "high"),
    # R: binom::binom.wilson(x, n)
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 1, 0.2065, 1.0)],
)
def test_the_interval_is_wilsons_score_interval(
    times: int, of: int, low: float, high: float
) -> None:
    assert interval(times, of) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 500), st.data())
def test_an_interval_contains_its_rate_and_shrinks_with_tries(of: int, data: st.DataObject) -> None:
    times = data.draw(st.integers(0, of))
    low, high = interval(times, of)
    assert 0 <= low <= times / of + 1e-12 and times / of - 1e-12 <= high <= 1
    more = interval(4 * times, 4 * of)
    assert more[1] - more[0] < high - low
