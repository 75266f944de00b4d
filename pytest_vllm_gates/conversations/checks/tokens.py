"""Checks that every generated token is in a field of the answer.

The server's parsers split the raw text into reasoning, content and calls. Here it is split a
second time by the family file alone; text that the answer's fields lack is a fault.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.family import Family, Tools
    from pytest_vllm_gates.client.answer import Answer, Exchange, ToolCall

SHOWN = 80
PLACES = re.compile("NAME|KEY|VALUE|ARGUMENTS")
BETWEEN_TAGS = re.compile(r"(?<=>)\s*(?=<)")
WORDS = re.compile(r"[^\W\d_]{2,}")
LITERALS = {"true", "false", "null", "none"}


@dataclass(frozen=True)
class Reading:
    """The raw output as the family file reads it; `blocks` are the texts of its tool calls."""

    reasoning: str
    content: str
    blocks: tuple[str, ...]


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
    blocks: list[str] = []
    if family.tools is not None:
        opening, closing = _delimiters(family.tools)
        pattern = re.compile(f"{re.escape(opening)}(.*?)(?:{re.escape(closing)}|$)", re.DOTALL)
        blocks = [match[0] for match in pattern.finditer(text)]
        text = pattern.sub("", text)
    return Reading(reasoning, text, tuple(blocks))


def texts(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield what of the raw output's reasoning and content the whole answer lacks or makes up."""
    answer = exchange.whole
    if answer is None or exchange.raw is None or exchange.stopped:
        return
    reading = read(exchange.raw, family, thinks=exchange.thinks)
    if answer.tool_calls and not reading.blocks:
        return  # forced by a grammar of its own, in a form the family file does not describe
    for field, actual, expected in (
        ("reasoning", answer.reasoning, reading.reasoning),
        ("content", answer.content, reading.content),
    ):
        if _words(actual, family) != _words(expected, family):
            yield f"{field} is {_excerpt(actual)}, and the tokens say {_excerpt(expected)}"


def calls(exchange: Exchange, family: Family) -> Iterator[str]:
    """Yield what of the raw output's tool calls the whole answer lacks or makes up."""
    answer = exchange.whole
    if answer is None or exchange.raw is None or exchange.stopped or exchange.cut:
        return
    yield from lost(answer, exchange.raw, family, thinks=exchange.thinks)


def lost(answer: Answer, raw: str, family: Family, *, thinks: bool) -> Iterator[str]:
    """Yield what an answer's calls lack of the raw output, and what they hold beyond it."""
    if family.tools is None:
        return
    blocks = "".join(read(raw, family, thinks=thinks).blocks)
    if not blocks:
        return
    before_name = _around(family.tools.call, "NAME")
    count = blocks.count(before_name) if before_name else len(answer.tool_calls)
    if count != len(answer.tool_calls):
        calls = len(answer.tool_calls)
        yield f"{calls} calls came, and the tokens hold {count}: {_excerpt(blocks)}"
        return
    remainder = blocks
    for markup in _markup(family.tools):
        remainder = remainder.replace(markup, " ")
    leaves = [
        (f"tool_calls[{index}]", leaf)
        for index, call in enumerate(answer.tool_calls)
        for leaf in [call.name, *_leaves(call)]
    ]
    # The longest first: a short one may be a part of it.
    for where, leaf in sorted(leaves, key=lambda pair: len(pair[1]), reverse=True):
        spelled = next((spelling for spelling in _spellings(leaf) if spelling in remainder), None)
        if spelled is None:
            yield f"{where} holds {_excerpt(leaf)}, which the tokens do not"
        else:
            remainder = remainder.replace(spelled, " ", 1)
    missing = [word for word in WORDS.findall(remainder) if word.lower() not in LITERALS]
    if missing:
        yield f"the calls lack what the tokens hold: {' '.join(missing)[:SHOWN]!r}"


def _delimiters(tools: Tools) -> tuple[str, str]:
    """Return the first and the last tag of a call."""
    call = tools.call.strip()
    first, last = re.match(r"<[^>]*>", call), re.search(r"<[^<]*>$", call)
    return (first[0] if first else call[:1]), (last[0] if last else call[-1:])


def _around(call: str, place: str) -> str:
    """Return the text right before a place of the call's form, from the last marker on."""
    before = call.partition(place)[0].rstrip()
    if before.endswith(">"):
        return before[before.rfind("<") :]
    return before[max(before.rfind("<"), before.rfind(">") + 1, before.rfind("\n") + 1) :]


def _markup(tools: Tools) -> list[str]:
    """Return the parts of a call's form that are neither name, key nor value, longest first."""
    tags = [tag for part in PLACES.split(tools.call) for tag in BETWEEN_TAGS.split(part)]
    tags += [tag.replace('"true"', '"false"') for tag in tags]
    words = {tag.strip() for tag in (*tags, *tools.markers) if WORDS.search(tag)}
    return sorted(words, key=len, reverse=True)


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
    """Return a text without white space and markers, which need no field."""
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
    """Return which parsers read the model's output, as a hint when it is not parsed.

    `serve`: the flags of the server, spelled with underscores; None where they are not known.
    """
    if serve is None:
        return "look at the --reasoning-parser and --tool-call-parser that the server was given"
    flags = [f"--{name.replace('_', '-')} {serve[name]}" for name in PARSERS if serve.get(name)]
    return (
        f"the server reads it with {' and '.join(flags) or 'no parser'}: one for another format "
        "leaves it as it was written; [serve] of the family, the checkpoint or the lane names them"
    )
