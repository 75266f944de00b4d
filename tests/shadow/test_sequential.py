"""E-values average 1 under their null hypothesis, and stay valid however often one looks."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from pytest_vllm_gates.shadow.sequential import (
    BY_ORDERS,
    EVEN,
    RateMixture,
    log_below,
    log_excess,
    most_events,
    quantile_ranks,
    rate_bounds,
    trials_until,
    upper_difference,
)

ALPHA = 0.05


@pytest.mark.parametrize("mixture", [EVEN, BY_ORDERS])
@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.5, 0.95])
def test_evidence_of_an_excess_averages_one_at_the_rate(rate: float, mixture: RateMixture) -> None:
    trials = 40
    mean = sum(
        stats.binom.pmf(events, trials, rate) * math.exp(log_excess(events, trials, rate, mixture))
        for events in range(trials + 1)
    )
    assert mean == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_evidence_of_an_excess_averages_less_below_the_rate(rate: float) -> None:
    mean = sum(
        stats.binom.pmf(events, 40, rate / 2) * math.exp(log_excess(events, 40, rate))
        for events in range(41)
    )
    assert mean < 1


@pytest.mark.parametrize(("margin", "failing"), [(0.01, 0.0), (0.05, 0.1), (0.0, 0.2)])
def test_evidence_of_a_difference_below_averages_one_at_the_margin(
    margin: float, failing: float
) -> None:
    """The mean difference is the margin in each trial: plus by `failing + margin`."""
    chances = (failing, 1 - 2 * failing - margin, failing + margin)
    trials = 12
    mean = sum(
        float(stats.multinomial.pmf((minus, trials - minus - plus, plus), trials, chances))
        * math.exp(log_below(minus, plus, trials, margin))
        for minus in range(trials + 1)
        for plus in range(trials + 1 - minus)
    )
    assert mean == pytest.approx(1.0)


def test_fair_coins_are_called_unfair_as_seldom_as_stated_though_looked_at_each_time() -> None:
    made = random.Random(7)
    alarms = 0
    for _ in range(400):
        heads = 0
        for flips in range(1, 101):
            heads += made.random() < 0.5
            if log_excess(heads, flips, 0.5) >= -math.log(ALPHA):
                alarms += 1
                break
    assert alarms <= stats.binom.ppf(0.999, 400, ALPHA)


def test_a_quantile_stays_within_its_bounds_though_looked_at_often() -> None:
    made = random.Random(11)
    outside = 0
    for _ in range(200):
        values: list[float] = []
        for _ in range(20):
            values = sorted([*values, *(made.random() for _ in range(20))])
            low, high = quantile_ranks(len(values), 0.5, ALPHA)
            below = low is not None and values[low] > 0.5
            if below or (high is not None and values[high] < 0.5):
                outside += 1
                break
    assert outside <= stats.binom.ppf(0.999, 200, ALPHA)


def test_few_values_bound_no_quantile() -> None:
    assert quantile_ranks(0, 0.5, ALPHA) == (None, None)
    assert quantile_ranks(2, 0.5, ALPHA) == (None, None)
    low, high = quantile_ranks(300, 0.95, ALPHA)
    assert low is not None and 250 < low < 285
    assert high is not None and 285 < high < 300


def test_bounds_close_in_on_the_quantile() -> None:
    widths = []
    for trials in (100, 1000, 10_000):
        low, high = quantile_ranks(trials, 0.5, ALPHA)
        assert low is not None and high is not None
        assert low < trials / 2 < high
        widths.append((high - low) / trials)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.05


def test_most_events_is_the_last_count_without_enough_evidence() -> None:
    most = most_events(200, 0.5, 1e-3)
    assert log_excess(most, 200, 0.5) < math.log(1e3) <= log_excess(most + 1, 200, 0.5)


def test_five_failures_against_none_are_no_evidence_at_a_thousandth() -> None:
    """Under equal rates one of 32 canaries has all five: no comparison can do better."""
    assert log_excess(5, 5, 0.5) < math.log(32) < math.log(1000)
    assert log_excess(14, 14, 0.5) > math.log(1000)


def test_two_failures_of_five_hundred_are_evidence_against_one_of_a_million() -> None:
    assert log_excess(2, 500, 1e-6, BY_ORDERS) > math.log(1e5)


def test_a_bound_of_the_difference_falls_with_the_pairs_and_rises_with_failures() -> None:
    bounds = [upper_difference(0, 0, pairs, 1e-3) for pairs in (5, 100, 500, 1024)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == 1
    assert bounds[-1] < 0.01
    assert upper_difference(0, 10, 1024, 1e-3) > 0.01
    assert upper_difference(10, 10, 1024, 1e-3) > upper_difference(30, 10, 1024, 1e-3)


def test_the_first_trials_at_which_a_condition_is_met_are_found() -> None:
    assert trials_until(lambda trials: trials >= 10, 3) == 10
    found = trials_until(lambda trials: trials >= 70_000, 3)
    assert found is not None and 70_000 <= found <= 70_700
    assert trials_until(lambda trials: trials >= 3, 5) == 5
    assert trials_until(lambda _: False, 1) is None


@pytest.mark.parametrize(("events", "trials"), [(0, 50), (1, 50), (25, 50), (50, 50), (3, 4000)])
def test_bounds_of_a_rate_are_the_rates_that_fit_the_events(events: int, trials: int) -> None:
    lower, upper = rate_bounds(events, trials, ALPHA)
    assert 0 <= lower <= events / trials <= upper <= 1
    goal = math.log(2 / ALPHA)
    if events:
        assert log_excess(events, trials, lower * 0.999) >= goal
        assert log_excess(events, trials, lower * 1.001) < goal
    else:
        assert lower == 0
    if events < trials:
        assert log_excess(trials - events, trials, 1 - upper) >= goal
    else:
        assert upper == 1


def test_bounds_of_a_rate_are_valid_at_every_look() -> None:
    drawn = random.Random(1)
    missed = 0
    for _ in range(200):
        events, inside = 0, True
        for trials in range(1, 61):
            events += drawn.random() < 0.2
            lower, upper = rate_bounds(events, trials, ALPHA)
            inside = inside and lower <= 0.2 <= upper
        missed += not inside
    assert missed <= 200 * ALPHA + 3 * math.sqrt(200 * ALPHA)
    assert rate_bounds(0, 0, ALPHA) == (0.0, 1.0)
