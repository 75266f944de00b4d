"""The odds and prompts of the sampling gate are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.sampling import seeds
from pytest_vllm_gates.sampling.plan import load

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tests_of_a_run_share_one_in_a_million() -> None:
    plan = load()
    assert plan.odds.alarm * plan.tests == pytest.approx(1e-6)
    assert plan.odds.miss == plan.miss
    assert len(set(plan.prompts)) == len(plan.prompts)


def test_odds_of_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sampling.toml"
    path.write_text(
        'prompts = ["x"]\nthoughts = ["x"]\nalarm = 1.0\ntests = 3\nmiss = 0.1\nmost_draws = 9\n'
    )
    with pytest.raises(UserError, match="alarm"):
        load(path)


def test_every_seed_is_another() -> None:
    assert len(set(seeds.SEEDS)) == len(seeds.SEEDS)
