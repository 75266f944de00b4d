"""Intervals over boots keep their odds for any number of looks, and priors count as boots."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from pytest_vllm_gates.throughput.statistics import (
    Mean,
    Prior,
    difference,
    holm,
    mean_of,
    scatter,
    spend,
)

NONE = Prior(sd=1.0, degrees=0)


def test_without_a_prior_the_scatter_is_the_samples_own() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    sd, degrees = scatter(values, NONE)
    assert sd == pytest.approx(statistics.stdev(values))
    assert degrees == 3


def test_a_prior_counts_as_so_many_boots() -> None:
    sd, degrees = scatter([5.0], Prior(sd=0.02, degrees=8))
    assert sd == pytest.approx(0.02)
    assert degrees == 8
    sd, degrees = scatter([0.0, 2.0], Prior(sd=1.0, degrees=1))
    assert sd == pytest.approx(math.sqrt((1 + 2) / 2))
    assert degrees == 2


def test_difference_of_one_boot_has_a_larger_error() -> None:
    prior = Prior(sd=0.1, degrees=10)
    mean = difference(1.5, [1.0], prior)
    several = difference(1.5, [1.0] * 4, prior)
    assert mean.value == several.value == pytest.approx(0.5)
    assert mean.error == pytest.approx(0.1 * math.sqrt(2))
    assert several.error < mean.error
    assert (mean.degrees, several.degrees) == (10, 13)


def test_mean_of_several_boots_has_a_smaller_error() -> None:
    mean = mean_of([1.0, 2.0, 4.0, 5.0], NONE)
    assert (mean.value, mean.degrees) == (3.0, 3)
    assert mean.error == pytest.approx(math.sqrt(10 / 3) / 2)


def test_bounds_match_tables_of_students_t() -> None:
    mean = Mean(0.0, 1.0, 8)
    assert mean.below(0.05) == pytest.approx(1.860, abs=1e-3)
    assert mean.above(0.01) == pytest.approx(-2.896, abs=1e-3)
    assert Mean(1.860, 1.0, 8).odds() == pytest.approx(0.05, abs=1e-4)
    precise = Mean(1.0, 0.1, 8)
    assert precise.below(0.05) == pytest.approx(1.186, abs=1e-3)
    assert precise.above(0.01) == pytest.approx(1 - 0.2896, abs=1e-3)
    assert Mean(0.186, 0.1, 8).odds() == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize("looks", [(1, 5), (2, 8), (3, 3)])
def test_all_looks_together_spend_the_whole_error(looks: tuple[int, int]) -> None:
    spent = [spend(0.05, looks, now) for now in range(looks[0], looks[1] + 1)]
    assert sum(spent) == pytest.approx(0.05)
    assert spent[1:] == sorted(spent[1:])


def test_holm_stops_at_the_first_hypothesis_kept() -> None:
    odds = {"a": 0.001, "b": 0.02, "c": 0.03}
    assert holm(odds, 0.05) == ["a", "b", "c"]
    assert holm(odds | {"b": 0.03}, 0.05) == ["a"]
    assert holm({}, 0.05) == []
    assert holm({"a": 0.03, "b": 0.02, "c": 0.001}, 0.05) == ["c", "b", "a"]
    assert holm({"a": 0.05}, 0.05) == ["a"]


def test_repeated_looks_keep_the_alarm_rate() -> None:
    chance, prior, looks, alpha = random.Random(5), Prior(0.02, 8), (2, 8), 0.05  # noqa: S311
    alarms = 0
    gates = 400
    for _ in range(gates):
        values: list[float] = []
        for number in range(1, looks[1] + 1):
            values.append(chance.gauss(0, 0.02))
            if number >= looks[0] and mean_of(values, prior).above(spend(alpha, looks, number)) > 0:
                alarms += 1
                break
    assert alarms <= alpha * gates + 3 * math.sqrt(alpha * gates)
