"""Checks that every generated token is in a field of the answer.

The server's parsers split the raw text into reasoning, content and calls. Here it is split a
second time by the family file alone; text that is missing in the answer's fields is a fault.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.call_form import WORDS, CallForm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_vllm_gates.catalog.call_form import WrittenCall
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer, Exchange, ToolCall

SHOWN = 80
FORCED = ("required", "named")
JSON_BEGINS = ("[", "{")
LITERALS = {"true", "false", "null", "none"}


@dataclass(frozen=True)
class Reading:
    """The raw output as the family file reads it."""

    reasoning: str
    content: str
    calls: tuple[WrittenCall, ...]


def read(raw: str, family: Family, *, thinks: bool) -> Reading:
    """Split the raw output of a model of this family.

    Text up to the tag that closes the thinking is thinking, whether it was requested or not.
    """
    text = raw
    for stop in family.prompt.stop_tokens:
        text = text.removesuffix(stop)
    reasoning = ""
    if (thinking := family.thinking) is not None:
        start = text.lstrip()
        opened = start.startswith(thinking.open.strip())
        if opened:
            text = start.removeprefix(thinking.open.strip())
        in_thought = thinks and thinking.opened_by == "template"
        if opened or in_thought or thinking.close in text:
            reasoning, _, text = text.partition(thinking.close)
    calls: tuple[WrittenCall, ...] = ()
    if family.tools is not None:
        text, calls = CallForm(family.tools).split(text)
    return Reading(reasoning, text, calls)


def texts(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield differences in reasoning and content between the whole answer and the raw output."""
    answer = exchange.whole
    if answer is None or exchange.raw is None or exchange.stopped:
        return
    reading = read(exchange.raw, family, thinks=exchange.thinks)
    if answer.tool_calls and not reading.calls:
        return  # forced by a separate grammar, in a form that the family file does not describe
    if exchange.cut and exchange.cell.tools in FORCED and reading.content.startswith(JSON_BEGINS):
        return  # the beginning of such a call
    for field, actual, expected in (
        ("reasoning", answer.reasoning, reading.reasoning),
        ("content", answer.content, reading.content),
    ):
        if _words(actual, family) != _words(expected, family):
            yield f"{field} is {_excerpt(actual)}, and the tokens contain {_excerpt(expected)}"


def calls(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield differences in tool calls between the whole answer and the raw output."""
    answer = exchange.whole
    if answer is None or exchange.raw is None or exchange.stopped or exchange.cut:
        return
    yield from lost(answer, exchange.raw, family, thinks=exchange.thinks)


def lost(answer: Answer, raw: str, family: Family, *, thinks: bool) -> Iterator[str]:
    """Yield texts of the raw output that are missing in an answer's calls, and additional ones."""
    if family.tools is None:
        return
    found = read(raw, family, thinks=thinks).calls
    if not found:
        return
    form = CallForm(family.tools)
    count, came = form.count(found), len(answer.tool_calls)
    if count is not None and count != came:
        blocks = "".join(written.block for written in found)
        yield f"{came} calls came, and the tokens contain {count}: {_excerpt(blocks)}"
        return
    remainder = form.bare(found)
    leaves = [
        (f"tool_calls[{index}]", leaf)
        for index, call in enumerate(answer.tool_calls)
        for leaf in [call.name, *_leaves(call)]
    ]
    # The longest first: a short one may be a part of it.
    for where, leaf in sorted(leaves, key=lambda pair: len(pair[1]), reverse=True):
        spelled = next((spelling for spelling in _spellings(leaf) if spelling in remainder), None)
        if spelled is None:
            yield f"{where} contains {_excerpt(leaf)}, which the tokens do not"
        else:
            remainder = remainder.replace(spelled, " ", 1)
    missing = [word for word in WORDS.findall(remainder) if word.lower() not in LITERALS]
    if missing:
        yield f"the calls lack text of the tokens: {' '.join(missing)[:SHOWN]!r}"
    elif count is not None:
        yield from _in_another_order(answer, found)


def _in_another_order(answer: Answer, found: tuple[WrittenCall, ...]) -> Iterator[str]:
    """Yield a sentence if the calls are in another order than in the raw output."""
    parts = [part for written in found for part in written.parts]
    if len(parts) != len(answer.tool_calls):
        return
    held = [
        [_holds(part, [call.name, *_leaves(call)]) for part in parts] for call in answer.tool_calls
    ]
    for index, by_part in enumerate(held):
        if not by_part[index] and any(by_part):
            yield f"tool_calls[{index}] was written as number {by_part.index(True)}"
            return


def _holds(part: str, leaves: Iterable[str]) -> bool:
    return all(any(spelled in part for spelled in _spellings(leaf)) for leaf in leaves)


def _leaves(call: ToolCall) -> Iterator[str]:
    try:
        yield from _texts(json.loads(call.arguments))
    except (ValueError, RecursionError):
        yield call.arguments


def _texts(value: Any) -> Iterator[str]:
    """Yield every key and text of a JSON value, the longest spelling first."""
    if isinstance(value, dict):
        for key, element in value.items():
            yield str(key)
            yield from _texts(element)
    elif isinstance(value, list):
        for element in value:
            yield from _texts(element)
    elif isinstance(value, str) and value:
        yield value


def _spellings(text: str) -> Iterator[str]:
    yield text
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]
    yield text.strip()


def _words(text: str, family: Family) -> str:
    """Return a text without white space and markers, which do not need a field."""
    for marker in family.markers:
        text = text.replace(marker, "")
    return "".join(text.split())


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


PARSERS = ("reasoning_parser", "tool_call_parser")


def names_parser(serve: Mapping[str, Any]) -> bool:
    """Return whether flags, spelled with underscores, name a parser."""
    return any(serve.get(name) for name in PARSERS)


def parser_hint(serve: Mapping[str, Any] | None) -> str:
    """Return the parsers that read the model's output, as a hint if it is not parsed.

    `serve`: the flags of the server, spelled with underscores; None if they are not known.
    """
    if serve is None:
        return "check the server's --reasoning-parser and --tool-call-parser"
    flags = [f"--{name.replace('_', '-')} {serve[name]}" for name in PARSERS if serve.get(name)]
    return (
        f"the server reads it with {' and '.join(flags) or 'no parser'}: a parser for another "
        "format leaves it unparsed; [serve] of the family, the checkpoint or the lane sets them"
    )
