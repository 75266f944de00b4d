"""A server's own figures (`GET /metrics`, Prometheus text), summed over its engines."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.server import exposition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.endpoint import Endpoint


@dataclass(frozen=True)
class Load:
    """Counts since the server began, except the requests that run and wait now."""

    at: float
    """The time of the reading, on the monotonic clock, in seconds."""
    running: int
    waiting: int
    generated: int
    """Tokens generated."""
    read: int
    """Tokens of prompts processed."""
    preempted: int
    """Requests preempted because the KV cache was full."""
    kv_usage: float
    """The share of the KV cache in use, 0 to 1, summed over the engines."""
    cached: int = 0
    """Tokens of prompts that were found in the prefix cache."""

    @property
    def in_flight(self) -> int:
        """How many requests run or wait."""
        return self.running + self.waiting

    @property
    def progress(self) -> tuple[float, ...]:
        """The figures that change whenever the server makes progress with its requests."""
        return (self.running, self.waiting, self.generated, self.read, self.kv_usage)

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens_total"
READ = "vllm:prompt_tokens_total"
PREEMPTED = "vllm:num_preemptions_total"
HITS = "vllm:prefix_cache_hits_total"

# The first name is that of 0.10 and later.
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
CACHE_CONFIG = "vllm:cache_config_info"


class Metrics:
    """Reads a server's metrics while its `with` block lasts."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises `NotApplicable` if the server does not report how many requests are in flight."""
        self._client = http.client(endpoint)
        reply = self._client.get("/metrics")
        if not reply.is_success or RUNNING not in reply.text:
            self._client.close()
            raise NotApplicable(
                "the server does not report how many requests run "
                f"(/metrics answers {reply.status_code}): a cancelled request cannot be seen"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def load(self) -> Load:
        """Return the server's load now; raises `httpx.HTTPError` if it does not answer."""
        text = self._client.get("/metrics").raise_for_status().text
        return Load(
            at=time.monotonic(),
            running=round(_sum_of(text, (RUNNING,))),
            waiting=round(_sum_of(text, (WAITING,))),
            generated=round(_sum_of(text, (GENERATED,))),
            read=round(_sum_of(text, (READ,))),
            preempted=round(_sum_of(text, (PREEMPTED,))),
            kv_usage=_sum_of(text, KV_USAGE),
            cached=round(_sum_of(text, (HITS,))),
        )


def cached_tokens(endpoint: Endpoint) -> int:
    """Return how many tokens of prompts were found in the prefix cache since the server began.

    0 if the server does not report it.
    """
    return round(_sum_of(_text(endpoint), (HITS,)))


def sums(endpoint: Endpoint, names: Sequence[str]) -> dict[str, float]:
    """Return series summed over all engines, by name; 0 for one that the server does not have."""
    text = _text(endpoint)
    return {name: _sum_of(text, (name,)) for name in names}


def cache_config(endpoint: Endpoint) -> dict[str, str]:
    """Return the setup of the server's KV cache, by vLLM's own names; empty if not reported.

    The labels of `vllm:cache_config_info`: `block_size`, `num_gpu_blocks`, `cache_dtype` and more.
    """
    try:
        told = exposition.samples(_text(endpoint), (CACHE_CONFIG,))
    except httpx.HTTPError:
        return {}
    return dict(told[0].labels) if told else {}


def _text(endpoint: Endpoint) -> str:
    with http.client(endpoint) as client:
        try:
            return client.get("/metrics").text
        except httpx.HTTPError:
            return ""


def _sum_of(text: str, names: Sequence[str]) -> float:
    """Return the sum of these series over all engines."""
    values = [(sample.name, sample.value) for sample in exposition.samples(text, names)]
    with reading(exposition.PATH):
        for name, value in values:
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}")
        return sum(value for _, value in values)
