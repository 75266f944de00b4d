"""Compares two answers to the same request field by field.

A streamed answer of the same tokens is compared with the whole one, so a check of the whole answer
covers both. A streamed answer with other tokens was generated differently and is checked alone.
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

    `names` are the names of the two answers in the sentences.

    White space at the ends of reasoning and content does not count: vLLM's parsers trim it in one
    mode and not in the other, and clients do not notice. Inside, it counts. Arguments are compared
    as JSON values; ids are new for every request and only have to be present in both.
    """
    first_name, second_name = names

    def value(field: str, first: object, second: object) -> Iterator[str]:
        if first != second:
            yield f"{field}: {first_name} {first!r}, {second_name} {second!r}"

    def text(field: str, first: str, second: str) -> Iterator[str]:
        first, second = first.strip(), second.strip()
        if first == second:
            return
        if not first or not second:
            full, empty = (second_name, first_name) if second else (first_name, second_name)
            excerpt = _shown(first or second)
            yield f"{field}: empty in the {empty} answer, {excerpt} in the {full} one"
            return
        at = _first_difference(first, second)
        yield (
            f"{field}: differs from character {at} on: "
            f"{first_name} {_shown(first[at:])}, {second_name} {_shown(second[at:])}"
        )

    def calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> Iterator[str]:
        if len(first) != len(second):
            yield (
                f"tool_calls: {len(first)} in the {first_name} answer ({_names(first)}), "
                f"{len(second)} in the {second_name} one ({_names(second)})"
            )
            return
        for index, (left, right) in enumerate(zip(first, second, strict=True)):
            where = f"tool_calls[{index}]"
            yield from value(f"{where}.name", left.name, right.name)
            if canonical(left.arguments) != canonical(right.arguments):
                yield (
                    f"{where}.arguments: {first_name} {_shown(left.arguments)}, "
                    f"{second_name} {_shown(right.arguments)}"
                )
            yield from value(f"{where}.id present", bool(left.id), bool(right.id))

    return [
        *text("reasoning", whole.reasoning, streamed.reasoning),
        *text("content", whole.content, streamed.content),
        *calls(whole.tool_calls, streamed.tool_calls),
        *value("finish_reason", whole.finish_reason, streamed.finish_reason),
        *value("usage", whole.usage, streamed.usage),
    ]


def divergence(first: Answer, second: Answer) -> int | None:
    """Return the first token in which two answers to one greedy request differ; None if none.

    Answers with other tokens were generated differently and cannot be compared field by field. An
    answer whose usage counts more or fewer tokens than it has lost some on the way: it does not
    count as generated differently.
    """
    if (
        not (_has_all_tokens(first) and _has_all_tokens(second))
        or first.token_ids == second.token_ids
    ):
        return None
    return _first_difference(first.token_ids, second.token_ids)


def _has_all_tokens(answer: Answer) -> bool:
    counted = answer.usage.completion_tokens if answer.usage else len(answer.token_ids)
    return bool(answer.token_ids) and len(answer.token_ids) == counted


def _first_difference(first: Sequence[object], second: Sequence[object]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(first), len(second)))


def canonical(arguments: str) -> str:
    """Return a call's arguments as normalised JSON, or the text itself if it is not JSON.

    Compared as text, because to Python `1` and `true` are equal and to a tool they are not. 3.0
    is 3: JSON knows one kind of number (RFC 8259, section 6).
    """
    try:
        return json.dumps(json.loads(arguments, parse_float=_number), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def _names(calls: Sequence[ToolCall]) -> str:
    return ", ".join(call.name for call in calls) or "none"


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def faults_in_every_mode(
    exchange: Exchange, judge: Callable[[Exchange], Iterable[str]]
) -> Iterator[str]:
    """Yield the faults that `judge` finds in an exchange: whole, and streamed if that differs."""
    yield from judge(exchange)
    streams = (("streamed", exchange.streamed), ("streamed in wide deltas", exchange.widened))
    for name, answer in streams:
        if exchange.whole and answer and divergence(exchange.whole, answer) is not None:
            for fault in judge(replace(exchange, whole=answer)):
                yield f"{name}, of other tokens: {fault}"
