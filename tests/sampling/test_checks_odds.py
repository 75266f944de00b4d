"""The sequential test keeps its odds, and finds the given alternatives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vllm_gates.sampling.checks_odds import AuditOdds, SequentialTest

ODDS = AuditOdds(alarm=1e-3, miss=1e-2)
FAIR, LOADED = math.log(0.5), math.log(0.75)


def play(draws: int, documented: float, loaded: float, columns: int = 1) -> SequentialTest:
    played = SequentialTest.between(["loaded"], ODDS, columns)
    shape = (draws, columns)
    played.add([1] * draws, np.full(shape, documented), {"loaded": np.full(shape, loaded)})
    return played


def test_nothing_drawn_decides_nothing() -> None:
    begun = SequentialTest.between(["loaded"], ODDS)
    assert not begun.decided
    assert begun.undecided == ["loaded"]


def test_it_fails_as_soon_as_the_alternative_is_a_thousand_times_likelier() -> None:
    needed = math.ceil(math.log(1000) / (LOADED - FAIR))
    assert not play(needed - 1, FAIR, LOADED).decided
    assert play(needed, FAIR, LOADED).fails


def test_it_passes_as_soon_as_the_alternative_is_a_hundred_times_less_likely() -> None:
    needed = math.ceil(math.log(100) / (FAIR - math.log(0.25)))
    assert not play(needed - 1, FAIR, math.log(0.25)).decided
    assert play(needed, FAIR, math.log(0.25)).passes


def test_it_passes_only_when_every_alternative_is_excluded() -> None:
    played = SequentialTest.between(["near", "far"], ODDS)
    draws = np.full(20, FAIR)
    played.add([1] * 20, draws, {"near": draws - 0.01, "far": draws - 1})
    assert played.excluded == {"far"}
    assert not played.decided
    assert played.undecided == ["near"]


def test_an_impossible_draw_fails_at_once_and_counts_for_no_ratio() -> None:
    played = SequentialTest.between(["loaded"], ODDS)
    played.add([5, 6], np.array([FAIR, -np.inf]), {"loaded": np.array([LOADED, LOADED])})
    assert played.impossible == [6]
    assert played.fails
    assert played.ratio("loaded") == pytest.approx(LOADED - FAIR)


def test_an_alternative_that_cannot_draw_it_is_excluded_at_once() -> None:
    assert play(1, FAIR, -np.inf).passes


def test_the_likeliest_alternative_is_named() -> None:
    played = SequentialTest.between(["a", "b"], ODDS)
    played.add([1], np.array([FAIR]), {"a": np.array([FAIR]), "b": np.array([LOADED])})
    assert played.likeliest == "b"


def test_of_several_columns_the_accused_has_the_best() -> None:
    played = SequentialTest.between(["loaded"], ODDS, 2)
    documented = np.array([[FAIR, LOADED]] * 50)
    played.add([1] * 50, documented, {"loaded": np.array([[LOADED, LOADED]] * 50)})
    assert played.ratio("loaded") == pytest.approx(0.0)
    assert not played.fails


def test_a_fair_coin_is_accused_more_seldom_than_the_odds_allow() -> None:
    random = np.random.default_rng(5)
    alarms = 0
    odds = AuditOdds(alarm=0.05, miss=1e-9)
    for _ in range(300):
        played = SequentialTest.between(["loaded", "lighter"], odds)
        for _ in range(10):
            heads = random.random(20) < 0.5
            played.add(
                [int(head) for head in heads],
                np.full(20, FAIR),
                {
                    "loaded": np.where(heads, math.log(0.6), math.log(0.4)),
                    "lighter": np.where(heads, math.log(0.45), math.log(0.55)),
                },
            )
            if played.fails:
                alarms += 1
                break
    assert alarms <= 25  # of 15 on average where the bound is reached
