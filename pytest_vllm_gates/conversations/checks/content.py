"""Checks that content follows the requested format."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer, Exchange

SHOWN = 120


def is_judgeable(exchange: Exchange) -> bool:
    """Return whether the request sets a format and the answer ended by itself."""
    answer = exchange.whole
    ended = not (exchange.stopped or exchange.cut)
    return answer is not None and ended and not answer.tool_calls and exchange.cell.format != "text"


def json_value(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if the content is not exactly one JSON value of the schema.

    NaN, infinities and duplicate keys are faults: a strict client refuses them.
    """
    schema, answer = exchange.asked.json_schema, exchange.whole
    if schema is None or answer is None or not is_judgeable(exchange):
        return
    if faults := list(no_json(answer)):
        yield from faults
    else:
        yield from against_schema(answer, schema)


def no_json(answer: Answer) -> Iterator[str]:
    """Yield a sentence if the content is not exactly one JSON value."""
    try:
        syntax.json_value(answer.content, unique=True, finite=True)
    except syntax.BadSyntaxError as error:
        where = "; reasoning contains it" if _holds_json(answer.reasoning) else ""
        yield f"content is not one JSON value ({error}): {answer.content[:SHOWN]!r}{where}"


def against_schema(answer: Answer, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each fault of JSON content by a schema."""
    import jsonschema  # noqa: PLC0415 - heavy, and few runs get here

    value = syntax.json_value(answer.content)
    for fault in jsonschema.Draft202012Validator(schema).iter_errors(value):
        yield f"content{fault.json_path[1:]}: {fault.message}"


def pattern(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence if the whole content does not match the regular expression."""
    regex, answer = exchange.asked.regex, exchange.whole
    if regex is None or answer is None or not is_judgeable(exchange):
        return
    if not re.fullmatch(regex, answer.content):
        yield f"content does not match {regex!r}: {answer.content[:SHOWN]!r}"


BLANKS = 32
"""Characters of white space at a cut answer's end that do not belong to a text."""


def blanks(answer: Answer) -> Iterator[str]:
    """Yield a sentence if an answer in a format fills its limit with white space.

    Grammars allow white space between JSON tokens, and a model that prefers it does not end.
    """
    text = answer.content
    white = len(text) - len(text.rstrip())
    if answer.finish_reason == "length" and white >= BLANKS:
        yield (
            f"the answer ends in {white} characters of white space, at the limit: "
            f"{text.rstrip()[-SHOWN:]!r}"
        )


def not_as_requested(answer: Answer, kind: str, words: str, regex: str) -> Iterator[str]:
    """Yield a sentence if content breaks the format: an enum of `words`, a regex, an object.

    An answer that the limit cut is not judged, nor one that calls a tool.
    """
    if answer.finish_reason == "length" or answer.tool_calls:
        return
    text = answer.content.strip()
    if kind == "regex":
        if not re.fullmatch(regex, text):
            yield f"content does not match {regex!r}: {answer.content[:SHOWN]!r}"
        return
    try:
        value = syntax.json_value(text)
    except syntax.BadSyntaxError as error:
        where = "; reasoning contains it" if _holds_json(answer.reasoning) else ""
        yield f"content is not one JSON value ({error}): {answer.content[:SHOWN]!r}{where}"
        return
    if kind == "enum" and value != words:
        yield f"content is {text[:SHOWN]!r}, and the schema allows only {words!r}"
    if kind == "object" and not isinstance(value, dict):
        yield f"content is {text[:SHOWN]!r}, and a JSON object was requested"


def _holds_json(text: str) -> bool:
    start = text.find("{")
    try:
        json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return start >= 0


AROUND = 30


def fields(answer: Answer) -> Iterator[tuple[str, str]]:
    """Yield every text that a client reads, with the field's name."""
    yield "reasoning", answer.reasoning
    yield "content", answer.content
    for index, call in enumerate(answer.tool_calls):
        yield f"tool_calls[{index}].name", call.name
        yield f"tool_calls[{index}].arguments", call.arguments
