"""Requests sampled tool calls and counts the valid ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.conversations.walk import AT_A_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat

TEMPERATURE = 0.6


@dataclass(frozen=True)
class SampledCalls:
    """The number of valid calls in `of` sampled answers, and the faults of the others."""

    valid: int
    of: int
    invalid: tuple[str, ...]


def sample(
    chat: Chat,
    body: Mapping[str, object],
    times: int,
    faults: Callable[[Answer], Iterable[str]],
) -> SampledCalls:
    """Send the same question `times` times and judge each answer.

    Without a seed: on vLLM's CPU backend up to 0.32, a seeded request whose prompt is read in two
    steps ends the engine ("CPU Generator does not use offset").
    """

    def sample(_: int) -> str | None:
        answer = chat.ask({**body, "temperature": TEMPERATURE, "seed": None})
        return next(iter(faults(answer)), None)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        invalid = [fault for fault in pool.map(sample, range(times)) if fault]
    return SampledCalls(times - len(invalid), times, tuple(invalid))
