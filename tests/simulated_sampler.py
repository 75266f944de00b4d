"""A server that draws from a known law as documented, or with a fault."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_vllm_gates.sampling.checks_law import Seen, processed
from pytest_vllm_gates.sampling.types import Parameters, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_vllm_gates.sampling.types import Law

OFFSET = 12.0
"""The largest logit of the simulated model, nats."""
NAMES = {parameter.name for parameter in fields(Parameters)}


@dataclass
class SimulatedServer:
    """Draws from a law; `change` is its fault, and `seed_of` what it makes of a request's seed."""

    law: Law
    random: np.random.Generator
    change: Callable[[Parameters], Parameters] = lambda parameters: parameters
    seed_of: Callable[[int | None, bool], int | None] = lambda seed, _: seed
    counts: list[int] = field(default_factory=list)
    tops: int = 0
    """How many of the likeliest tokens come with an answer for which no others are named."""
    crowd: bool = False
    """Whether a request that comes is one of several at once."""

    @property
    def tokens(self) -> int:
        """Tokens that were sampled so far."""
        return sum(self.counts)

    def complete(self, prompt: Sequence[int], body: Mapping[str, Any]) -> list[Sample]:
        """Answer as a server does."""
        asked = self.change(_parameters(body))
        seed = self.seed_of(body.get("seed"), self.crowd)
        generators = [
            self.random if seed is None else np.random.default_rng(seed + number)
            for number in range(body.get("n", 1))
        ]
        likeliest = [int(token) for token in self.law.ids[: self.tops]]
        wanted = body.get("logprob_token_ids") or likeliest
        if body["max_tokens"] == 1:
            samples = self._single(asked, generators[0], len(generators), wanted)
        else:
            samples = [
                self._answer(asked, prompt, body["max_tokens"], generator, wanted)
                for generator in generators
            ]
        self.counts.append(sum(len(sample.tokens) for sample in samples))
        return samples

    def _single(
        self, asked: Parameters, generator: np.random.Generator, n: int, wanted: Sequence[int]
    ) -> list[Sample]:
        p = np.exp(processed(self.law, asked))
        places = generator.choice(len(p), size=n, p=p / p.sum())
        known = ({token: self._log(token) for token in wanted},)
        return [
            Sample((int(self.law.ids[place]),), (float(self.law.logprobs[place]),), known)
            for place in places
        ]

    def _log(self, token: int) -> float:
        return float(self.law.logprobs[self.law.places[token]])

    def _answer(
        self,
        asked: Parameters,
        prompt: Sequence[int],
        length: int,
        generator: np.random.Generator,
        wanted: Sequence[int],
    ) -> Sample:
        known = {token: self._log(token) for token in wanted}
        tokens: list[int] = []
        for _ in range(length):
            p = np.exp(processed(self.law, asked, Seen(prompt, tokens), OFFSET))
            tokens.append(int(self.law.ids[generator.choice(len(p), p=p / p.sum())]))
        logs = tuple(self._log(token) for token in tokens)
        return Sample(tuple(tokens), logs, (known,) * length)


def _parameters(body: Mapping[str, Any]) -> Parameters:
    values = {name: value for name, value in body.items() if name in NAMES}
    if "logit_bias" in values:
        values["logit_bias"] = {int(t): bias for t, bias in values["logit_bias"].items()}
    values["allowed_token_ids"] = tuple(values.get("allowed_token_ids", ()))
    return Parameters(**values)
