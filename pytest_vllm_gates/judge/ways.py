"""What every way of answering is to keep: whole, and streamed where that was generated differently.

A streamed answer of the same tokens is held against the whole one, field by field (`agreement.py`),
so that judging the whole one judges both. One of other tokens is an answer of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.conversations.checks.agreement import divergence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_vllm_gates.client.answer import Exchange


def told(exchange: Exchange, judge: Callable[[Exchange], Iterable[str]]) -> Iterator[str]:
    """Yield what a judge of whole answers says of an exchange, whichever way it was answered."""
    yield from judge(exchange)
    ways = (("streamed", exchange.streamed), ("streamed in wide deltas", exchange.widened))
    for name, answer in ways:
        if exchange.whole and answer and divergence(exchange.whole, answer) is not None:
            for sentence in judge(replace(exchange, whole=answer)):
                yield f"{name}, of other tokens: {sentence}"
