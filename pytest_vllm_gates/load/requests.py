"""Makes the requests of a load: exact token counts, the same for the same seed."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_vllm_gates.load.trace import BLOCK_TOKENS
from pytest_vllm_gates.load.types import ExpectedLengths, PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.plans import Traffic
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.load.trace import Arrival, BatchRequest

CONSTANT = "constant"
COMPLETIONS = "/v1/completions"
COUNTED = {"include_usage": True, "continuous_usage_stats": True}
STREAMED = {"stream": True, "stream_options": COUNTED}
OWN_TOKENS = 8
"""Tokens at the beginning of a block, drawn for that block alone."""


@dataclass(frozen=True)
class Requests:
    """The requests of one phase, and the expected lengths of each by its name."""

    planned: tuple[PlannedRequest, ...]
    expected: dict[str, ExpectedLengths]


class Maker:
    """Makes requests for completions of token ids, which a server reads unchanged.

    Answers continue to their last token regardless of the model (`ignore_eos`), so that two servers
    have the same work. Every chunk has the count of tokens so far (`continuous_usage_stats`).
    """

    def __init__(self, endpoint: Endpoint, traffic: Traffic, token_ids: Sequence[int]) -> None:
        """`token_ids`: the tokens for prompts, at least twice as many as the longest has."""
        self._endpoint = endpoint
        self._traffic = traffic
        self._token_ids = token_ids
        self._ring = list(
            itertools.islice(itertools.cycle(token_ids), len(token_ids) + BLOCK_TOKENS)
        )
        self._path = f"{urlsplit(endpoint.root_url).path}{COMPLETIONS}"

    def make(self, seed: str, times: Sequence[float | None]) -> Requests:
        """Return one request for each scheduled time; the same for the same seed."""
        chance = random.Random(seed)  # noqa: S311 - it hides nothing
        planned, expected = [], {}
        beginning = chance.randrange(len(self._token_ids) // 2)
        for number, at_s in enumerate(times):
            length = chance.randint(*self._traffic.prompt_tokens)
            output = chance.randint(*self._traffic.output_tokens)
            start = chance.randrange(len(self._token_ids) - length + 1)
            prompt = list(self._token_ids[start : start + length])
            if chance.random() < self._traffic.shared:
                shared_tokens = self._traffic.shared_tokens
                prompt[:shared_tokens] = self._token_ids[beginning : beginning + shared_tokens]
            name = f"{seed}-{number}"
            expected[name] = ExpectedLengths(length, output)
            planned.append(PlannedRequest(name, self._path, self._body(prompt, output), at_s))
        return Requests(tuple(planned), expected)

    def replay(self, seed: str, arrivals: Sequence[Arrival], context: int) -> tuple[Requests, int]:
        """Return requests of a trace's times and lengths, and how many had to be cut.

        `context`: the tokens that a prompt and its answer may have together. A longer request loses
        the end of its prompt; if one token of prompt is left, its answer is shortened. Only prompts
        with the same block ids begin alike.
        """
        planned, expected, cut = [], {}, 0
        for number, arrival in enumerate(arrivals):
            output = min(arrival.output_tokens, context - 1)
            length = min(arrival.prompt_tokens, context - output)
            cut += (length, output) != (arrival.prompt_tokens, arrival.output_tokens)
            prompt = self._blocks(seed, number, arrival, length)
            name = f"{seed}-{number}"
            expected[name] = ExpectedLengths(length, output)
            at_s = arrival.at_s / self._traffic.trace_speed
            planned.append(PlannedRequest(name, self._path, self._body(prompt, output), at_s))
        return Requests(tuple(planned), expected), cut

    def _blocks(self, seed: str, number: int, arrival: Arrival, length: int) -> list[int]:
        """Return a prompt of so many tokens, block by block; the same id gives the same block."""
        prompt: list[int] = []
        for place in range(-(-length // BLOCK_TOKENS)):
            block = arrival.blocks[place] if arrival.blocks else f"{number}.{place}"
            chance = random.Random(f"{seed}-{block}")  # noqa: S311 - it hides nothing
            # A few tokens per block, or two blocks cut at the same place would be one.
            own = chance.choices(self._token_ids, k=OWN_TOKENS)
            start = chance.randrange(len(self._token_ids))
            prompt += [*own, *self._ring[start : start + BLOCK_TOKENS - OWN_TOKENS]]
        return prompt[:length]

    def from_batch(self, requests: Sequence[BatchRequest], times: Sequence[float]) -> Requests:
        """Return the requests of a batch file unchanged, in their order, at these times.

        Only the model is replaced by the served one, and answers are streamed with counts.
        """
        root = self._path.removesuffix(COMPLETIONS)
        planned = []
        for request, at_s in zip(requests, times, strict=False):
            options = request.body.get("stream_options")
            body = {**request.body, "model": self._endpoint.model, **STREAMED}
            if isinstance(options, dict):
                body["stream_options"] = {**options, **COUNTED}
            planned.append(
                PlannedRequest(request.name, root + request.path, json.dumps(body).encode(), at_s)
            )
        return Requests(tuple(planned), {request.name: ExpectedLengths() for request in planned})

    def _body(self, prompt: Sequence[int], output_tokens: int) -> bytes:
        body = {
            "model": self._endpoint.model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
            **STREAMED,
        }
        return json.dumps(body).encode()


def arrivals(process: str, rate: float, count: int, seed: str) -> list[float]:
    """Return when `count` requests are sent, `rate` a second: seconds from the first, in order."""
    return constant(rate, count) if process == CONSTANT else poisson(rate, count, seed)


def constant(rate: float, count: int) -> list[float]:
    """Return when `count` requests are sent at equal intervals, `rate` a second."""
    return [number / rate for number in range(count)]


def poisson(rate: float, count: int, seed: str) -> list[float]:
    """Return when `count` independent requests are sent, `rate` a second on average.

    Seconds from the first; the time between two is exponentially distributed.
    """
    chance = random.Random(seed)  # noqa: S311 - it hides nothing
    at, times = 0.0, []
    for _ in range(count):
        times.append(at)
        at += chance.expovariate(rate)
    return times
