"""Do two answers to the same request say the same, field by field?

What every way of answering is to keep: whole, and streamed where that was generated differently.

A streamed answer of the same tokens is held against the whole one, field by field (`agreement.py`),
so that judging the whole one judges both. One of other tokens is an answer of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_vllm_gates.client.answer import Answer, Exchange, ToolCall

SHOWN = 60
WHOLE_AND_STREAMED = ("whole", "streamed")


def differences(
    whole: Answer, streamed: Answer, names: tuple[str, str] = WHOLE_AND_STREAMED
) -> list[str]:
    """Return one sentence for every field in which a streamed answer differs from the whole one.

    `names` are what the two are called in the sentences.

    White space at the ends of reasoning and content does not count: vLLM's parsers trim it in one
    mode and not in the other, and no client can tell. Inside it does. Arguments are compared as
    JSON values; ids are made anew for every request and only have to be there in both.
    """
    item, other = names

    def value(field: str, first: object, second: object) -> Iterator[str]:
        if first != second:
            yield f"{field}: {item} {first!r}, {other} {second!r}"

    def text(field: str, first: str, second: str) -> Iterator[str]:
        first, second = first.strip(), second.strip()
        if first == second:
            return
        if not first or not second:
            full, empty = (other, item) if second else (item, other)
            shown = _shown(first or second)
            yield f"{field}: empty in the {empty} answer, {shown} in the {full} one"
            return
        at = _parting(first, second)
        yield (
            f"{field}: differs from character {at} on: "
            f"{item} {_shown(first[at:])}, {other} {_shown(second[at:])}"
        )

    def calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> Iterator[str]:
        if len(first) != len(second):
            yield (
                f"tool_calls: {len(first)} in the {item} answer ({_names(first)}), "
                f"{len(second)} in the {other} one ({_names(second)})"
            )
            return
        for index, (left, right) in enumerate(zip(first, second, strict=True)):
            where = f"tool_calls[{index}]"
            yield from value(f"{where}.name", left.name, right.name)
            if canonical(left.arguments) != canonical(right.arguments):
                yield (
                    f"{where}.arguments: {item} {_shown(left.arguments)}, "
                    f"{other} {_shown(right.arguments)}"
                )
            yield from value(f"{where}.id present", bool(left.id), bool(right.id))

    return [
        *text("reasoning", whole.reasoning, streamed.reasoning),
        *text("content", whole.content, streamed.content),
        *calls(whole.tool_calls, streamed.tool_calls),
        *value("finish_reason", whole.finish_reason, streamed.finish_reason),
        *value("usage", whole.usage, streamed.usage),
    ]


def divergence(answer: Answer, other: Answer) -> int | None:
    """Return the first token in which two answers to one greedy request differ, None where none.

    Answers of other tokens were generated differently and cannot be compared field by field. An
    answer whose usage counts more or fewer tokens than came was not: some are lost on the way.
    """
    if not (_tells_all(answer) and _tells_all(other)) or answer.token_ids == other.token_ids:
        return None
    return _parting(answer.token_ids, other.token_ids)


def _tells_all(answer: Answer) -> bool:
    counted = answer.usage.completion_tokens if answer.usage else len(answer.token_ids)
    return bool(answer.token_ids) and len(answer.token_ids) == counted


def _parting(entry: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(entry, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(entry), len(other)))


def canonical(arguments: str) -> str:
    """Return a call's arguments as JSON of one spelling, or the text itself when it is not JSON.

    Compared as text, because to Python `1` and `true` are equal and to a tool they are not.
    """
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _names(calls: Sequence[ToolCall]) -> str:
    return ", ".join(call.name for call in calls) or "none"


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def told(exchange: Exchange, judge: Callable[[Exchange], Iterable[str]]) -> Iterator[str]:
    """Yield what a judge of whole answers says of an exchange, whichever way it was answered."""
    yield from judge(exchange)
    ways = (("streamed", exchange.streamed), ("streamed in wide deltas", exchange.widened))
    for name, answer in ways:
        if exchange.whole and answer and divergence(exchange.whole, answer) is not None:
            for sentence in judge(replace(exchange, whole=answer)):
                yield f"{name}, of other tokens: {sentence}"
