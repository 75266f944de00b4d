"""Two rules that judge speed from output tokens a second, and the measurement they share."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.contest.asking import Asker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.contest.types import Target

STREAMS = 8
"""Concurrent requests, as many as `data/load.toml` has."""
REQUESTS = 64
TOKENS = 112
"""Of each answer; a chat of less than 100 is left as it is by the faults of `tests/faults`."""
NIGHTS = 7
SIGMAS = 2.0
NIGHTLY_SHARE = 0.01
FIXED_SHARE = 0.05
# Not 0: the proxy of `tests/faults` remembers greedy answers, and these have to be made anew.
TEMPERATURE = 0.01


def measure(target: Target) -> tuple[float, int]:
    """Return output tokens a second over concurrent streams, and the number of requests.

    They go to /v1/completions, as those of `vllm bench serve` and its nightly runs do
    (https://docs.vllm.ai/en/latest/cli/bench/serve). Raises what the openai client raises.
    """
    asker = Asker(target)
    model = asker.model()

    def stream(number: int) -> int:
        counted = 0
        chunks = asker.client.completions.create(
            model=model,
            prompt=f"Write two lines about {number} boats.",
            max_tokens=TOKENS,
            temperature=TEMPERATURE,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        for chunk in chunks:
            counted = chunk.usage.completion_tokens if chunk.usage else counted
        return counted

    began = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as threads:
        tokens = sum(threads.map(stream, range(REQUESTS)))
    return tokens / (time.monotonic() - began), REQUESTS


def nightly(value: float, history: Sequence[float]) -> tuple[bool | None, str]:
    """Judge as vLLM's nightly alarm: more than two sigma and 1 % below the last seven days."""
    nights = history[-NIGHTS:]
    if len(nights) < NIGHTS:
        return None, f"{len(nights)} of {NIGHTS} nights are recorded"
    mean, deviation = statistics.fmean(nights), statistics.stdev(nights)
    lost = mean - value
    found = lost > SIGMAS * deviation and lost > NIGHTLY_SHARE * mean
    return found, f"{value:.0f} tokens/s, of seven {mean:.0f} +- {deviation:.0f}"


def fixed(value: float, history: Sequence[float]) -> tuple[bool | None, str]:
    """Judge by a fixed share: more than 5 % below the last measurement."""
    if not history:
        return None, "nothing is recorded"
    return value < (1 - FIXED_SHARE) * history[-1], f"{value:.0f} tokens/s, last {history[-1]:.0f}"
