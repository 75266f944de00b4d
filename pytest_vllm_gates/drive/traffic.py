"""Makes the requests of a load: exact counts of tokens, the same for the same seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_vllm_gates.facts.loaded import Asked
from pytest_vllm_gates.facts.timing import Planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.facts.launch import Endpoint
    from pytest_vllm_gates.facts.traffic import Traffic


@dataclass(frozen=True)
class Requests:
    """The requests of one phase, and what each asks for by its name."""

    planned: tuple[Planned, ...]
    asked: dict[str, Asked]


class Maker:
    """Makes requests for completions of token ids, which a server reads as they stand.

    An answer goes on to its last token whatever the model would like (`ignore_eos`), so that two
    servers have the same to do. Every chunk says how many tokens there are by then
    (`continuous_usage_stats`).
    """

    def __init__(self, endpoint: Endpoint, traffic: Traffic, text: Sequence[int]) -> None:
        """`text`: token ids to cut prompts from, at least twice as many as the longest has."""
        self._endpoint = endpoint
        self._traffic = traffic
        self._text = text
        self._path = f"{urlsplit(endpoint.root_url).path}/v1/completions"

    def make(self, seed: str, times: Sequence[float | None]) -> Requests:
        """Return one request for each time it is to go out; the same for the same seed."""
        chance = random.Random(seed)  # noqa: S311 - it hides nothing
        planned, asked = [], {}
        beginning = chance.randrange(len(self._text) // 2)
        for number, at_s in enumerate(times):
            one = Asked(
                chance.randint(*self._traffic.prompt_tokens),
                chance.randint(*self._traffic.output_tokens),
            )
            start = chance.randrange(len(self._text) - one.prompt_tokens + 1)
            prompt = list(self._text[start : start + one.prompt_tokens])
            if chance.random() < self._traffic.shared:
                alike = self._traffic.shared_tokens
                prompt[:alike] = self._text[beginning : beginning + alike]
            name = f"{seed}-{number}"
            asked[name] = one
            planned.append(Planned(name, self._path, self._body(prompt, one), at_s))
        return Requests(tuple(planned), asked)

    def _body(self, prompt: Sequence[int], asked: Asked) -> bytes:
        body = {
            "model": self._endpoint.model,
            "prompt": prompt,
            "max_tokens": asked.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return json.dumps(body).encode()


def poisson(rate: float, count: int, seed: str) -> list[float]:
    """Return when `count` requests go out that come independently, `rate` a second on average.

    Seconds from the first; the time between two is exponentially distributed.
    """
    chance = random.Random(seed)  # noqa: S311 - it hides nothing
    at, times = 0.0, []
    for _ in range(count):
        times.append(at)
        at += chance.expovariate(rate)
    return times
