"""Servers whose streams a strict client refuses or receives too late: the streaming gate fails."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from faults.fault import Faults
from faults.proxy import LONG_EVENTS

if TYPE_CHECKING:
    from faults.exchange import Exchange

FAULTS = Faults("streaming")
ANSWERED = "every_request_is_answered"
FRAMED = "stream_is_framed_as_clients_expect"
WIDE = "deltas_of_several_tokens_lose_nothing"
USAGE = "usage_comes_only_where_it_is_asked"
ANSWER_ARRIVES = "chunks_arrive_as_they_are_made"
CALL_ARRIVES = "arguments_arrive_as_they_are_made"
PACED = (ANSWER_ARRIVES, CALL_ARRIVES)
FIRST_CHAT_TOKENS = 100
HELD_S = 0.6
STALL_S = 1.1


def first_chat(exchange: Exchange) -> bool:
    """Return whether this is the short chat by which a server is found to be ready."""
    return int(exchange.body.get("max_tokens") or 0) < FIRST_CHAT_TOKENS


def with_choices(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the events with a choice."""
    return [event for event in exchange.events if event.get("choices")]


@FAULTS.add("stream", check=FRAMED, says="the stream does not end in '[DONE]': its last event is")
def does_not_end_its_streams(exchange: Exchange) -> None:
    """A client that waits for [DONE] waits for ever."""
    exchange.done = first_chat(exchange)


@FAULTS.add("stream", check=FRAMED, says="the first chunk's role is None, not 'assistant'")
def streams_without_a_role(exchange: Exchange) -> None:
    """A client that begins a message at the role never begins one."""
    for part in exchange.parts:
        part.pop("role", None)


@FAULTS.add("stream", check=FRAMED, says="2 chunks have a finish_reason (stop, stop)")
def ends_twice(exchange: Exchange) -> None:
    """A gateway adds its own end."""
    last = copy.deepcopy(with_choices(exchange)[-1])
    last["choices"][0] |= {"delta": {}, "token_ids": None}
    exchange.events.append(last)


@FAULTS.add("stream", check=FRAMED, says="text comes after the chunk with the finish_reason")
def goes_on_after_its_end(exchange: Exchange) -> None:
    """A client that stops reading at the finish reason loses the last piece."""
    *_, before, last = with_choices(exchange)
    if not first_chat(exchange):
        end = copy.deepcopy(last)
        end["choices"][0] |= {"delta": {}, "token_ids": None}
        last["choices"][0] |= {"finish_reason": None, "stop_reason": None}
        exchange.events.insert(exchange.events.index(before), end)


@FAULTS.add("stream", check=FRAMED, says="the chunks of one stream have the ids ['")
def gives_every_chunk_an_id(exchange: Exchange) -> None:
    """A client that sorts chunks by the id of their answer sees many answers."""
    for number, event in enumerate(exchange.events):
        event["id"] = f"chatcmpl-{number}"


@FAULTS.add("stream", check=FRAMED, says="the chunks of one stream have the ids ['None']")
def gives_chunks_no_id(exchange: Exchange) -> None:
    """The field is left out."""
    for event in exchange.events:
        event.pop("id", None)


@FAULTS.add("stream", check=FRAMED, says="the content type is 'application/json', not 'text/")
def calls_streams_json(exchange: Exchange) -> None:
    """A browser's EventSource refuses them."""
    if not first_chat(exchange):
        exchange.shown_kind = "application/json"


@FAULTS.add("stream", check=FRAMED, says="a chunk splits a character: delta.content is")
def splits_a_character(exchange: Exchange) -> None:
    """Tokens are decoded one by one, and half a character becomes invalid."""
    for part in exchange.parts:
        if part.get("content") and not part["content"].isascii():
            part["content"] += "\N{REPLACEMENT CHARACTER}"


@FAULTS.add("stream", check=ANSWERED, says="'utf-8' codec can't decode byte")
def sends_half_a_character(exchange: Exchange) -> None:
    """A gateway cuts the bytes anywhere and drops what it cannot send."""
    if not first_chat(exchange):
        exchange.frame = lambda data: f"data: {data}\n\n".replace("\u2614", "\udce2\udc98")


@FAULTS.add(
    "stream",
    check=ANSWERED,
    says="Malformed: the stream is not as in the API: ",
    also=("stop", "tools"),
)
def breaks_its_events(exchange: Exchange) -> None:
    """A gateway sends its buffer when it is full: an event is cut in its middle."""
    if not first_chat(exchange):
        exchange.frame = lambda data: f"data: {data[:200]}\n\ndata: {data[200:]}\n\n"


@FAULTS.add(
    "stream",
    check=FRAMED,
    says="the stream does not end in '[DONE]': its last event is",
    also=("reasoning", "stop", "tools"),
)
def leaves_no_line_between_events(exchange: Exchange) -> None:
    """Events end in one line break where two are due."""
    if not first_chat(exchange):
        exchange.frame = "data: {}\n".format


@FAULTS.add(
    "whole",
    check=ANSWERED,
    says="the answer is not a chat completion: '<html>Please wait</html>'",
    also=("boot", "stop", "tools"),
)
def answers_a_page(exchange: Exchange) -> None:
    """A gateway answers with a waiting page and status 200."""
    exchange.kind, exchange.text = "text/html", "<html>Please wait</html>"


@FAULTS.add("asked", check=ANSWERED, says="answered 400: ")
def knows_no_regex(exchange: Exchange) -> None:
    """A gateway refuses unknown fields."""
    if "regex" in exchange.body.get("structured_outputs", ()):
        exchange.body["structured_outputs"] = {"regexp": ".*"}


@FAULTS.add("stream", check=USAGE, says="stream_options did not request usage, and a chunk has it")
def counts_tokens_unasked(exchange: Exchange) -> None:
    """A chunk without choices, where a client takes the first one."""
    if not exchange.body.get("stream_options"):
        usage = {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
        exchange.events.append({**exchange.events[-1], "choices": [], "usage": usage})


@FAULTS.add("stream", check=WIDE, says=".arguments: whole", also=("tools",))
def loses_arguments_in_wide_deltas(exchange: Exchange) -> None:
    """A delta with an end and a beginning in it loses one of them (vllm#34449)."""
    if exchange.body.get("stream_interval"):
        for call in exchange.calls:
            if not call["function"].get("name"):
                call["function"]["arguments"] = call["function"]["arguments"][:-1]


@FAULTS.add("stream", check=WIDE, says="1 in the streamed in wide deltas one")
def loses_calls_in_wide_deltas(exchange: Exchange) -> None:
    """The parser sees only one of several calls in a delta (vllm#41967)."""
    for part in exchange.parts if exchange.body.get("stream_interval") else ():
        if part.get("tool_calls"):
            part["tool_calls"] = [call for call in part["tool_calls"] if call["index"] == 0]


@FAULTS.add("stream", check=WIDE, says="reasoning: differs from character")
def loses_the_thinkings_end_in_wide_deltas(exchange: Exchange) -> None:
    """Text in one delta with the end of the thinking is lost with it."""
    if exchange.body.get("stream_interval"):
        thoughts = [part for part in exchange.parts if part.get("reasoning")]
        for part in thoughts[-1:]:
            part["reasoning"] = part["reasoning"][:-6]


def long_answer(exchange: Exchange) -> bool:
    """Return whether this is the answer whose arrival is timed."""
    return bool(exchange.body.get("ignore_eos"))


def long_call(exchange: Exchange) -> bool:
    """Return whether this is the call whose arrival is timed."""
    return len([*exchange.calls]) > LONG_EVENTS


def hold(exchange: Exchange) -> None:
    """Send nothing for a while, and then all text at once."""
    texts = [
        event for event in with_choices(exchange) if any(event["choices"][0]["delta"].values())
    ]
    first_event = {event["choices"][0]["index"]: event for event in reversed(texts[1:])}[0]
    delta = first_event["choices"][0]["delta"]
    for event in texts[1:]:
        if event is not first_event:
            _append(delta, event["choices"][0]["delta"])
            exchange.events.remove(event)
    exchange.pause_s = lambda number, _: 0 if number else HELD_S


def _append(delta: dict[str, Any], addition: dict[str, Any]) -> None:
    for name in ("reasoning", "content"):
        if addition.get(name):
            delta[name] = (delta.get(name) or "") + addition[name]
    delta["tool_calls"] = (delta.get("tool_calls") or []) + (addition.get("tool_calls") or [])


@FAULTS.add("stream", check=ANSWER_ARRIVES, says="something on the way buffers the whole stream")
def holds_an_answer_back(exchange: Exchange) -> None:
    """A proxy that buffers: nothing for a while, then all of it."""
    if long_answer(exchange):
        hold(exchange)


@FAULTS.add("stream", check=ANSWER_ARRIVES, says="the stream stopped for ")
def stalls_in_an_answer(exchange: Exchange) -> None:
    """The answer stops in its middle and then goes on."""
    if long_answer(exchange):
        exchange.pause_s = lambda number, count: STALL_S if number == count // 2 else 0.001


@FAULTS.add("stream", check=CALL_ARRIVES, says="the user sees nothing until everything has arrived")
def sends_arguments_in_one_burst(exchange: Exchange) -> None:
    """The arguments are parsed when the call is at its end."""
    if long_call(exchange):
        pieces = [call["function"] for call in exchange.calls]
        pieces[-1]["arguments"] = "".join(function.get("arguments") or "" for function in pieces)
        for piece in pieces[:-1]:
            piece.pop("arguments", None)


@FAULTS.add("stream", check=CALL_ARRIVES, says="something on the way buffers the whole stream")
def holds_a_call_back(exchange: Exchange) -> None:
    """The whole answer is delayed until its call is complete."""
    if long_call(exchange):
        hold(exchange)
