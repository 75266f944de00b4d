"""The scatter and the smallest loss from pairs of boots of one lane."""

from __future__ import annotations

import dataclasses
import math

import pytest
from scipy import stats

from pytest_vllm_gates.catalog.plans import Pair
from pytest_vllm_gates.throughput import calibration
from throughput.boot_noise import PLAN, Noise


def test_more_pairs_show_smaller_differences() -> None:
    effects = calibration.smallest_effects(0.02, 8, PLAN)
    assert [*effects] == [2, 3, 4, 5, 6, 7, 8]
    assert [*effects.values()] == sorted(effects.values(), reverse=True)
    assert effects[8] < PLAN.against.margin < effects[2]


def test_the_smallest_loss_is_found_in_all_but_beta_of_gates() -> None:
    sd, alpha = 0.02, PLAN.odds.alpha * (2 / 8) ** 2
    reach = stats.t.isf(alpha, 8 + 1) + stats.t.isf(PLAN.odds.beta, 8 + 1)
    effects = calibration.smallest_effects(sd, 8, PLAN)
    assert effects[2] == pytest.approx(1 - math.exp(-reach * sd / math.sqrt(2)))


def test_identical_figures_keep_a_minimum_scatter() -> None:
    scatter = calibration.scatter_of([Noise(sd=0.0).pair(0.0)], PLAN)
    assert scatter
    assert scatter.itl_s == calibration.FLOOR


def test_pairs_of_one_lane_give_the_scatter() -> None:
    alike = [Noise(sd=0.0).pair(slower) for slower in (0.03, -0.04)]
    scatter = calibration.scatter_of(alike, PLAN)
    assert scatter
    assert scatter.output_tokens_per_s == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))
    assert scatter.itl_s > 0
    assert calibration.scatter_of([Pair(())], PLAN) is None
    timed = [dataclasses.replace(pair, boots_s=100.0, took_s=200.0) for pair in alike]
    summary = calibration.summary(
        scatter.model_copy(update={"output_tokens_per_s": 0.02}), timed, PLAN
    )
    effects = calibration.smallest_effects(0.02, 2, PLAN)
    assert summary == (
        "A/A over 2 pairs of boots: they differ by 2.0% (sd); the smallest loss that "
        "95% of gates find: "
        + ", ".join(f"{effects[n]:.1%} in {n} pairs ({5 * n} min)" for n in range(2, 9))
    )
