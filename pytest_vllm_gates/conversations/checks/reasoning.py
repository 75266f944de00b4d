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
    """Yield a sentence for every one of `markers` in a field of an answer, as `markers` does."""
    request_text = json.dumps(request, ensure_ascii=False)
    for field, text in fields(answer):
        for marker in markers:
            if marker and marker in text and marker not in request_text:
                at = text.index(marker)
                excerpt = text[max(0, at - AROUND) : at + len(marker) + AROUND]
                yield f"{field} holds the marker {marker!r}: …{excerpt!r}…"


def without_thinking(exchange: Exchange) -> Iterator[str]:
    """Yield what is wrong with an answer that was to come without thinking."""
    answer = exchange.whole
    if answer is None or exchange.thinks:
        return
    if answer.reasoning.strip():
        yield f"the model was not to think, and reasoning is {answer.reasoning[:80]!r}"
    if not (answer.has_text or answer.tool_calls or exchange.stopped or exchange.cut):
        yield "the model was not to think, and there is no answer either"


def with_thinking(exchange: Exchange, family: Family, plain: Answer | None) -> Iterator[str]:
    """Yield what is wrong with an answer for which the model was to think.

    Where the model opens its thinking itself it may do without: there it has to think only if it
    does in the answer `plain` to a plain question.
    """
    answer, thinking = exchange.whole, family.thinking
    if answer is None or thinking is None or not exchange.thinks:
        return
    may_not = thinking.opened_by == "model" and not (plain and plain.reasoning.strip())
    if not answer.reasoning.strip() and not may_not:
        yield "the model was to think, and reasoning is empty"


def continuation(answer: Answer, begun: str, prompt_tokens: int | None) -> Iterator[str]:
    """Yield a sentence when an answer does not go on with the text that a client began.

    `prompt_tokens` are those of the prompt that ends in this text, None where it is not known.
    """
    counted = answer.usage.prompt_tokens if answer.usage else None
    if None not in (counted, prompt_tokens) and counted != prompt_tokens:
        yield (
            f"the prompt has {counted} tokens, and {prompt_tokens} where it ends in what was "
            "begun: the answer is begun anew"
        )
    if begun.strip() and answer.content.lstrip().startswith(begun.strip()):
        yield f"the answer repeats what it is to continue: {answer.content[:SHOWN]!r}"
    if answer.reasoning.strip() and not answer.has_text:
        yield f"what continues the answer is in reasoning: {answer.reasoning[:SHOWN]!r}"
