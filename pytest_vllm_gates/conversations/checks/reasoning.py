"""Thinking that leaks into the content, an answer in the thinking, a switch without effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.conversations.checks.content import AROUND, fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer, Exchange


SHOWN = 80


def markers(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield a sentence for every marker or special token in a field of the whole answer.

    A marker that the request itself quotes may come back.
    """
    if exchange.whole is not None:
        yield from held_markers(exchange.whole, exchange.request, family.markers)


def held_markers(
    answer: Answer, request: Mapping[str, Any], markers: Iterable[str]
) -> Iterator[str]:
    """Yield a sentence for each of `markers` in a field of an answer, as `markers` does."""
    request_text = json.dumps(request, ensure_ascii=False)
    for field, text in fields(answer):
        for marker in markers:
            if marker and marker in text and marker not in request_text:
                at = text.index(marker)
                excerpt = text[max(0, at - AROUND) : at + len(marker) + AROUND]
                yield f"{field} contains the marker {marker!r}: …{excerpt!r}…"


def without_thinking(exchange: Exchange) -> Iterator[str]:
    """Yield the faults of an answer that should have no thinking."""
    answer = exchange.whole
    if answer is None or exchange.thinks:
        return
    if answer.reasoning.strip():
        yield f"thinking is off, and reasoning is {answer.reasoning[:80]!r}"
    if not (answer.has_text or answer.tool_calls or exchange.stopped or exchange.cut):
        yield "thinking is off, and the answer is empty too"


def with_thinking(exchange: Exchange, family: Family, plain: Answer | None) -> Iterator[str]:
    """Yield the faults of an answer that should have thinking.

    A model that opens its thinking itself may leave it out: it has to think only if it does in
    `plain`, the answer to a plain question.
    """
    answer, thinking = exchange.whole, family.thinking
    if answer is None or thinking is None or not exchange.thinks:
        return
    may_not = thinking.opened_by == "model" and not (plain and plain.reasoning.strip())
    if not answer.reasoning.strip() and not may_not:
        yield "thinking is on, and reasoning is empty"


def continuation(answer: Answer, begun: str, prompt_tokens: int | None) -> Iterator[str]:
    """Yield a sentence if an answer does not continue the text that a client began.

    `prompt_tokens` counts the prompt that ends in this text; None if it is not known.
    """
    counted = answer.usage.prompt_tokens if answer.usage else None
    if None not in (counted, prompt_tokens) and counted != prompt_tokens:
        yield (
            f"the prompt has {counted} tokens, and {prompt_tokens} if it ends in the text to "
            "continue: the server begins a new answer"
        )
    if begun.strip() and answer.content.lstrip().startswith(begun.strip()):
        yield f"the answer repeats the text that it has to continue: {answer.content[:SHOWN]!r}"
    if answer.reasoning.strip() and not answer.has_text:
        yield f"the continuation is in reasoning: {answer.reasoning[:SHOWN]!r}"
