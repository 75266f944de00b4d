"""Does an answer keep to the format it was asked for?"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.answer import Exchange

SHOWN = 120


def judged(exchange: Exchange) -> bool:
    """Return whether a format was asked for and the answer had the chance to keep to it."""
    whole = exchange.whole
    ended = not (exchange.stopped or exchange.cut)
    return whole is not None and ended and not whole.tool_calls and exchange.cell.format != "text"


def json_value(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence when the content is not one JSON value of the schema, and nothing else."""
    import jsonschema  # noqa: PLC0415 - heavy, and few runs get here

    schema, whole = exchange.asked.json_schema, exchange.whole
    if schema is None or whole is None or not judged(exchange):
        return
    try:
        value = json.loads(whole.content)
    except (ValueError, RecursionError) as error:
        where = "; reasoning holds it" if _holds_json(whole.reasoning) else ""
        yield f"content is not one JSON value ({error}): {whole.content[:SHOWN]!r}{where}"
        return
    for fault in jsonschema.Draft202012Validator(schema).iter_errors(value):
        yield f"content{fault.json_path[1:]}: {fault.message}"


def pattern(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence when the content does not match the regular expression as a whole."""
    regex, whole = exchange.asked.regex, exchange.whole
    if regex is None or whole is None or not judged(exchange):
        return
    if not re.fullmatch(regex, whole.content):
        yield f"content does not match {regex!r}: {whole.content[:SHOWN]!r}"


def _holds_json(text: str) -> bool:
    start = text.find("{")
    try:
        json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return start >= 0
