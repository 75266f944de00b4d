"""Servers that do things differently but correctly: no gate may turn red."""

from __future__ import annotations

import copy
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from faults.exchange import CHAT
from faults.fault import Faults

if TYPE_CHECKING:
    from faults.exchange import Exchange

CHANGES = Faults(None)
LINE = 8  # characters


@CHANGES.add("chat")
def has_fields_nobody_knows(exchange: Exchange) -> None:
    """The next release adds some."""
    for event in exchange.events:
        event["novelty"] = {"of": ["the", "next"], "release": None}
    for part in exchange.parts:
        part["novelty"] = 1


@CHANGES.add("stream")
def sends_character_by_character(exchange: Exchange) -> None:
    """A chunk need not be a token."""
    events: list[dict[str, Any]] = []
    for event in exchange.events:
        choices = event.get("choices")
        content = (choices and choices[0]["delta"].get("content")) or ""
        pieces = [copy.deepcopy(event) for _ in content or " "]
        for number, (piece, character) in enumerate(zip(pieces, content, strict=False)):
            choice = piece["choices"][0]
            choice["delta"] = {**({} if number else choice["delta"]), "content": character}
            if number:
                choice |= {"token_ids": None, "logprobs": None}
            if number < len(content) - 1:
                choice |= {"finish_reason": None, "stop_reason": None}
        events += pieces
    exchange.events = events


@CHANGES.add("stream")
def sends_empty_chunks(exchange: Exchange) -> None:
    """Chunks may be empty."""
    empty = copy.deepcopy(exchange.events[0])
    for choice in empty["choices"]:
        choice["delta"] = {}
    first_event, *events = exchange.events
    exchange.events = [first_event, *(piece for event in events for piece in (empty, event))]


@CHANGES.add("whole")
def trims_texts(exchange: Exchange) -> None:
    """White space at the ends does not matter."""
    for part in exchange.parts:
        for name in ("reasoning", "content"):
            part[name] = part[name].strip() if part.get(name) else part.get(name)


@CHANGES.add("anything")
def refuses_in_a_shape_of_its_own(exchange: Exchange) -> None:
    """422 is as good as 400, and not every error is OpenAI's object."""
    if exchange.path == CHAT and exchange.status == HTTPStatus.BAD_REQUEST:
        exchange.status = HTTPStatus.UNPROCESSABLE_ENTITY
        for event in exchange.events:
            if isinstance(event.get("error"), dict):
                event["error"] = event["error"]["message"]


@CHANGES.add("stream")
def ends_texts_in_white_space(exchange: Exchange) -> None:
    """White space at the end of a stream does not matter, unless one text is the only choice."""
    if exchange.chosen:
        return
    for name in ("reasoning", "content"):
        pieces = [part for part in exchange.parts if part.get(name)]
        for part in pieces[-1:]:
            part[name] += " \n"


@CHANGES.add("stream")
def joins_chunks(exchange: Exchange) -> None:
    """Several tokens a chunk, where a gateway waits for a line or a busy server falls behind."""
    events = exchange.events[:1]
    for event in exchange.events[1:]:
        if not _join(events[-1], event):
            events.append(event)
    exchange.events = events


@CHANGES.add("stream")
def says_that_it_is_still_there(exchange: Exchange) -> None:
    """Comments between the events keep a connection open."""
    exchange.frame = ": ping\n\ndata: {}\n\n".format


@CHANGES.add("stream")
def ends_lines_as_http_does(exchange: Exchange) -> None:
    """CRLF is a line end to server-sent events, too."""
    exchange.frame = "data: {}\r\n\r\n".format


@CHANGES.add("stream")
def names_its_events(exchange: Exchange) -> None:
    """Events may have a name and an id, and need no space before their data."""
    exchange.frame = "event: message\nid: 7\ndata:{}\n\n".format


@CHANGES.add("stream")
def counts_as_it_goes(exchange: Exchange) -> None:
    """Usage in every chunk, if it was requested."""
    include_usage = (exchange.body.get("stream_options") or {}).get("include_usage")
    for event in exchange.events if include_usage else ():
        event["usage"] = event.get("usage") or exchange.events[-1]["usage"]


@CHANGES.add("chat")
def counts_more_than_it_has_to(exchange: Exchange) -> None:
    """Details of the tokens, and what they cost."""
    for event in exchange.events:
        if event.get("usage"):
            event["usage"] |= {"prompt_tokens_details": {"cached_tokens": 0}, "cost": 0.001}


@CHANGES.add("chat")
def numbers_its_calls(exchange: Exchange) -> None:
    """An id is any text that identifies a call."""
    for number, call in enumerate(exchange.calls):
        if call.get("id"):
            call["id"] = f"functions.{call['function']['name']}:{number}"


@CHANGES.add("whole")
def writes_arguments_in_its_own_way(exchange: Exchange) -> None:
    """JSON has many spellings."""
    for call in exchange.calls:
        values = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(values.items())), indent=1)


@CHANGES.add("chat")
def says_tool_calls_for_a_named_tool(exchange: Exchange) -> None:
    """OpenAI's finish reason is stop; other servers have another."""
    if isinstance(exchange.body.get("tool_choice"), dict):
        for choice in exchange.choices:
            if choice.get("finish_reason") == "stop" and not choice.get("stop_reason"):
                choice["finish_reason"] = "tool_calls"


def _join(event: dict[str, Any], next_event: dict[str, Any]) -> bool:
    """Append a chunk's text to the previous chunk's, if both have the same kind of text."""
    if not (event.get("choices") and next_event.get("choices")):
        return False
    choice, next_choice = event["choices"][0], next_event["choices"][0]
    if choice["index"] != next_choice["index"]:
        return False
    for name in ("reasoning", "content"):
        texts = choice["delta"].get(name), next_choice["delta"].get(name)
        if (
            all(texts)
            and set(next_choice["delta"]) == {name}
            and not next_choice.get("finish_reason")
        ):
            if len(texts[0]) > LINE:
                return False
            choice["delta"][name] += next_choice["delta"][name]
            choice["token_ids"] = (choice.get("token_ids") or []) + (
                next_choice.get("token_ids") or []
            )
            if choice.get("logprobs"):
                choice["logprobs"]["content"] += next_choice["logprobs"]["content"]
            return True
    return False
