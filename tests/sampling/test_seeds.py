"""Seeded answers are requested alone, again and among others, and paired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from simulated_sampler import SimulatedServer

from pytest_vllm_gates.sampling import checks, seeds
from pytest_vllm_gates.sampling.checks_odds import AuditOdds
from pytest_vllm_gates.sampling.types import Law

if TYPE_CHECKING:
    from collections.abc import Callable

LAW = Law.of({token: -0.15 * token for token in range(64)})
ODDS = AuditOdds(1e-6 / 32, 1e-3)


def asked(seed_of: Callable[[int | None, bool], int | None] | None = None) -> seeds.SeededAnswers:
    server = SimulatedServer(LAW, np.random.default_rng(3))
    if seed_of:
        server.seed_of = seed_of
    client: Any = server
    return seeds.ask(client, (0,))


def failing(answers: seeds.SeededAnswers) -> list[str]:
    same = {"again": answers.again, "among_others": answers.among_others}
    other = {
        "other_seeds": answers.other_seeds,
        "together": answers.other_seeds_together,
        "one_request": answers.one_request,
        "no_seed": answers.no_seed,
    }
    tests = {name: checks.repeats(pairs, ODDS) for name, pairs in same.items()}
    tests |= {name: checks.differs(pairs, ODDS) for name, pairs in other.items()}
    assert all(test.decided for test in tests.values())
    return [name for name, test in tests.items() if test.fails]


def test_a_server_that_keeps_to_seeds_is_right() -> None:
    assert failing(asked()) == []


@pytest.mark.parametrize(
    ("seed_of", "wrong"),
    [
        (lambda _seed, _crowd: None, ["again", "among_others"]),
        (lambda _seed, _crowd: 7, ["other_seeds", "together", "no_seed"]),
        (lambda seed, _crowd: 7 if seed is None else seed, ["no_seed"]),
    ],
)
def test_a_server_that_does_not_is_wrong(
    seed_of: Callable[[int | None, bool], int | None], wrong: list[str]
) -> None:
    assert failing(asked(seed_of)) == wrong


def test_a_seed_is_sent_and_all_else_is_neutral() -> None:
    body = seeds.body(5)
    assert (body["seed"], body["n"], body["temperature"]) == (5, 1, 1.0)
    assert body["max_tokens"] == seeds.TOKENS
