"""Requests seeded answers alone, again, and among others that have other seeds or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.sampling.types import Parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.sampling.client import SamplingClient
    from pytest_vllm_gates.sampling.types import Sample

SEEDS = tuple(range(20_260, 20_272))
NEIGHBOURS = 4
TOKENS = 8
MANY = 8

Pairs = list[tuple["Sample", "Sample"]]


@dataclass(frozen=True)
class SeededAnswers:
    """Pairs of answers by what they share."""

    again: Pairs
    """The same seed, requested twice alone."""
    among_others: Pairs
    """The same seed, alone and among others."""
    other_seeds: Pairs
    """One seed and the next, alone."""
    other_seeds_together: Pairs
    """One seed and the next, requested concurrently."""
    one_request: Pairs
    """Neighbouring answers of one request for several, with one seed."""
    no_seed: Pairs
    """Two requests without a seed."""


def body(seed: int | None, n: int = 1) -> dict[str, Any]:
    """Return a request for answers with a seed."""
    return {
        **Parameters().body(), "seed": seed, "n": n, "max_tokens": TOKENS, "ignore_eos": True,
        "logprobs": 0,
    }  # fmt: skip


def ask(client: SamplingClient, prompt: Sequence[int]) -> SeededAnswers:
    """Request all of them; raises as the client does."""

    def answer(seed: int | None) -> Sample:
        return client.complete(prompt, body(seed))[0]

    alone = [answer(seed) for seed in SEEDS]
    again = [answer(seed) for seed in SEEDS]
    crowd = [*SEEDS, *[None] * NEIGHBOURS]
    with ThreadPoolExecutor(len(crowd)) as pool:
        together = list(pool.map(answer, crowd))[: len(SEEDS)]
    many = client.complete(prompt, body(SEEDS[0], MANY))
    unseeded = [client.complete(prompt, body(None, MANY)) for _ in range(2)]
    return SeededAnswers(
        again=_pairs(alone, again),
        among_others=_pairs(alone, together),
        other_seeds=_pairs(alone[:-1], alone[1:]),
        other_seeds_together=_pairs(together[:-1], together[1:]),
        one_request=_pairs(many[:-1], many[1:]),
        no_seed=_pairs(*unseeded),
    )


def _pairs(first: Sequence[Sample], second: Sequence[Sample]) -> Pairs:
    return list(zip(first, second, strict=True))
