"""Servers whose streams break the rules of an API other than chat: the dialects gate fails."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from faults.dialects import (
    ANSWERS,
    COMPLETIONS,
    MESSAGES,
    ORDER,
    READS,
    RESPONSES,
    STREAMS,
    TOKENS,
    TYPES,
    Part,
    drop,
    events,
    stream,
)

if TYPE_CHECKING:
    from faults.exchange import Exchange


def split_bytes(text: str) -> list[str]:
    """Return a text in two, cut inside its first character of several bytes; whole without one."""
    if text.isascii():
        return [text]
    at = next(at for at, character in enumerate(text) if not character.isascii())
    encoded = text.encode()
    return [part.decode(errors="replace") for part in (encoded[: at + 1], encoded[at + 1 :])]


def renumber(exchange: Exchange) -> None:
    """Number a stream's events anew, after some came or went."""
    for number, event in enumerate(exchange.events):
        event["sequence_number"] = number


# Streams of the Responses API.


@stream(RESPONSES, READS, "the stream ends without any of")
def never_completes(exchange: Exchange) -> None:
    """The last event is not sent."""
    drop(exchange, "response.completed")


@stream(RESPONSES, READS, "the server ended the connection within its answer")
def breaks_responses_off(exchange: Exchange) -> None:
    """The connection ends after three events: the server's code failed in the stream."""
    exchange.cut_after = 3


@stream(RESPONSES, ORDER, "sequence_number ")
def numbers_nothing(exchange: Exchange) -> None:
    """Every event has the number 0."""
    for event in exchange.events:
        event["sequence_number"] = 0


@stream(RESPONSES, ORDER, "response.output_text.done has ")
def repeats_text_in_done_events(exchange: Exchange) -> None:
    """The done events are sent twice."""
    for event in events(exchange, "response.output_text.done"):
        event["text"] *= 2


@stream(RESPONSES, ORDER, " names item ")
def makes_ids_anew(exchange: Exchange) -> None:
    """Each event has another id."""
    for number, event in enumerate(exchange.events):
        if "item_id" in event:
            event["item_id"] += f"-{number}"


@stream(RESPONSES, ORDER, "is never done")
def leaves_items_open(exchange: Exchange) -> None:
    """Items are never done."""
    drop(exchange, "response.output_item.done")


@stream(RESPONSES, ORDER, "an item is added with output_index ")
def gives_all_items_one_index(exchange: Exchange) -> None:
    """Every item is the first one."""
    for event in exchange.events:
        if "output_index" in event:
            event["output_index"] = 0


@stream(RESPONSES, ORDER, "response.id changes in the stream")
def completes_another_response(exchange: Exchange) -> None:
    """The final response has another id."""
    exchange.events[-1]["response"]["id"] += "-final"


@stream(RESPONSES, ORDER, "response.created has a response with the status 'completed'")
def begins_with_what_is_over(exchange: Exchange) -> None:
    """The first event has the status completed."""
    for event in events(exchange, "response.created"):
        event["response"]["status"] = "completed"


@stream(RESPONSES, ORDER, " in it")
def says_in_advance(exchange: Exchange) -> None:
    """An item is added with a text that its deltas bring once more."""
    for event in events(exchange, "response.output_item.added"):
        if event["item"]["type"] == "message":
            part = {"type": "output_text", "text": "Hm", "annotations": []}
            event["item"]["content"] = [part]


@stream(RESPONSES, ORDER, "a content part is done with ")
def cuts_what_parts_repeat(exchange: Exchange) -> None:
    """The event that ends a part lacks its last character."""
    for event in events(exchange, "response.content_part.done"):
        event["part"]["text"] = event["part"]["text"][:-1]


@stream(RESPONSES, ORDER, "response.function_call_arguments.done never comes")
def ends_no_arguments(exchange: Exchange) -> None:
    """The event that has a call's whole arguments is not sent."""
    drop(exchange, "response.function_call_arguments.done")
    renumber(exchange)


@stream(RESPONSES, ORDER, " is never done")
def ends_no_parts(exchange: Exchange) -> None:
    """Parts of an item are never done, and the item is."""
    drop(exchange, "response.content_part.done")
    renumber(exchange)


@stream(RESPONSES, ORDER, "the stream has an error: 'out of memory'")
def fails_before_it_completes(exchange: Exchange) -> None:
    """An error comes shortly before the end, which reports a whole response."""
    error = {"type": "error", "code": "x", "message": "out of memory", "param": None}
    exchange.events.insert(-1, error)
    renumber(exchange)


@stream(RESPONSES, ORDER, "is done with the status 'in_progress'")
def never_finishes_items(exchange: Exchange) -> None:
    """Items that are done are still in progress."""
    for event in events(exchange, "response.output_item.done"):
        event["item"]["status"] = "in_progress"


@stream(RESPONSES, TYPES, "output_index: Input should be a valid integer")
def gives_indices_as_text(exchange: Exchange) -> None:
    """A gateway that rewrites numbers."""
    for event in events(exchange, "response.output_text.delta"):
        event["output_index"] = str(event["output_index"])


@stream(RESPONSES, TYPES, "is not known to the official client")
def has_events_of_its_own(exchange: Exchange) -> None:
    """Reasoning has events that no client knows."""
    for event in events(exchange, "response.reasoning_text.delta"):
        event["type"] = "response.reasoning.delta"


@stream(RESPONSES, ORDER, "and the deltas have ")
def loses_a_delta(exchange: Exchange) -> None:
    """A delta of a call's arguments is lost, and the done event has it."""
    deltas = events(exchange, "response.function_call_arguments.delta")
    if deltas:
        exchange.events.remove(deltas[0])
        renumber(exchange)


@stream(RESPONSES, STREAMS, "reasoning: empty in the streamed answer")
def streams_no_reasoning(exchange: Exchange) -> None:
    """Reasoning is left out of streams altogether."""
    kept: list[Part] = []
    for event in copy.deepcopy(exchange.events):
        item = event.get("item") or {}
        if item.get("type") == "reasoning" or event.get("item_id", "").startswith("rs_"):
            continue
        if "output_index" in event:
            event["output_index"] -= 1
        if output := (event.get("response") or {}).get("output"):
            event["response"]["output"] = [each for each in output if each["type"] != "reasoning"]
        kept.append({**event, "sequence_number": len(kept)})
    exchange.events = kept


@stream(RESPONSES, TOKENS, "usage is missing")
def streams_no_usage(exchange: Exchange) -> None:
    """A streamed response is not counted."""
    exchange.events[-1]["response"]["usage"] = None


@stream(RESPONSES, ORDER, "an event splits a character: ")
def splits_characters_of_responses(exchange: Exchange) -> None:
    """A gateway cuts the stream of bytes where a buffer ends, and decodes each part by itself."""
    kept: list[Part] = []
    for event in exchange.events:
        halves = [event]
        if event["type"] == "response.output_text.delta":
            halves = [{**event, "delta": half} for half in split_bytes(event["delta"])]
        kept += [{**half, "sequence_number": len(kept) + at} for at, half in enumerate(halves)]
    exchange.events = kept


# Streams of the Messages API.


@stream(MESSAGES, ORDER, "an event splits a character: ")
def splits_characters_of_messages(exchange: Exchange) -> None:
    """The same in the other API."""
    kept: list[Part] = []
    for event in exchange.events:
        halves = [event]
        if event["type"] == "content_block_delta" and "text" in event["delta"]:
            texts = split_bytes(event["delta"]["text"])
            halves = [{**event, "delta": {**event["delta"], "text": text}} for text in texts]
        kept += halves
    exchange.events = kept


@stream(MESSAGES, ORDER, "the last event is 'message_delta', not 'message_stop'")
def never_stops(exchange: Exchange) -> None:
    """The last event is not sent."""
    drop(exchange, "message_stop")


@stream(MESSAGES, ORDER, " answer texts of 24 characters or more came in one event")
def holds_answers_back(exchange: Exchange) -> None:
    """Thinking is streamed, and the answer comes at its end."""
    first: dict[int, Part] = {}
    kept = []
    for event in exchange.events:
        delta = event.get("delta", {})
        if delta.get("type") == "text_delta" and event["index"] in first:
            first[event["index"]]["text"] += delta["text"]
            continue
        if delta.get("type") == "text_delta":
            first[event["index"]] = delta
        kept.append(event)
    exchange.events = kept


@stream(MESSAGES, ORDER, "message_start counts ")
def counts_half_the_request_at_first(exchange: Exchange) -> None:
    """The first event counts fewer tokens of the request than the last one."""
    for event in events(exchange, "message_start"):
        event["message"]["usage"]["input_tokens"] //= 2


@stream(MESSAGES, ORDER, "message_delta comes 0 times")
def gives_no_stop_reason(exchange: Exchange) -> None:
    """The stop reason and the usage are not sent."""
    drop(exchange, "message_delta")


@stream(MESSAGES, ORDER, "the event has the name ''")
def names_no_event(exchange: Exchange) -> None:
    """Events have data alone, as in OpenAI's streams."""
    exchange.named = False


@stream(MESSAGES, ORDER, " never stops")
def leaves_blocks_open(exchange: Exchange) -> None:
    """Blocks never stop."""
    drop(exchange, "content_block_stop")


@stream(MESSAGES, ORDER, "a block starts with index 0, and 1 is next")
def gives_all_blocks_one_index(exchange: Exchange) -> None:
    """Every block is the first one."""
    for event in exchange.events:
        if "index" in event:
            event["index"] = 0


@stream(MESSAGES, READS, "the official client raises IndexError")
def starts_no_block(exchange: Exchange) -> None:
    """Deltas come at once."""
    drop(exchange, "content_block_start")


@stream(MESSAGES, ORDER, "comes in a block of type 'text'")
def calls_thinking_text(exchange: Exchange) -> None:
    """Thinking is streamed into a block of text."""
    for event in events(exchange, "content_block_start"):
        if event["content_block"]["type"] == "thinking":
            event["content_block"] = {"type": "text", "text": ""}


@stream(MESSAGES, STREAMS, "tool_calls[0].arguments: whole ")
def streams_no_input(exchange: Exchange) -> None:
    """A call is streamed without its input."""
    for event in events(exchange, "content_block_delta"):
        if event["delta"]["type"] == "input_json_delta":
            event["delta"]["partial_json"] = ""


@stream(MESSAGES, STREAMS, "content: differs from character ")
def sends_a_delta_twice(exchange: Exchange) -> None:
    """A retry between gateway and server."""
    deltas = [
        number
        for number, event in enumerate(exchange.events)
        if event["type"] == "content_block_delta" and event["delta"].get("text")
    ]
    if deltas:
        exchange.events.insert(deltas[-1], exchange.events[deltas[-1]])


@stream(MESSAGES, ORDER, "message_delta counts no output_tokens")
def streams_zero_tokens(exchange: Exchange) -> None:
    """The usage of a stream is zero."""
    for event in events(exchange, "message_delta"):
        event["usage"]["output_tokens"] = 0


@stream(MESSAGES, STREAMS, "finish_reason: whole 'tool_calls', streamed 'stop'")
def ends_a_streamed_turn_at_a_call(exchange: Exchange) -> None:
    """Only whole answers report that a tool is to be called."""
    for event in events(exchange, "message_delta"):
        if event["delta"]["stop_reason"] == "tool_use":
            event["delta"]["stop_reason"] = "end_turn"


@stream(MESSAGES, ORDER, "the stream has an error: ")
def fails_midway(exchange: Exchange) -> None:
    """An error ends a stream that began well."""
    error = {"type": "error", "error": {"type": "api_error", "message": "overloaded"}}
    exchange.events = [*exchange.events[:4], error]


@stream(COMPLETIONS, STREAMS, "content: differs from character ")
def streams_less_of_a_completion(exchange: Exchange) -> None:
    """A chunk of a completion is lost."""
    del exchange.events[len(exchange.events) // 2]


@stream(COMPLETIONS, ORDER, "the stream does not end in '[DONE]'")
def ends_without_done(exchange: Exchange) -> None:
    """Clients wait for the end."""
    exchange.done = False


@stream(MESSAGES, ANSWERS, "the answer names '/models/qwen'")
def streams_the_name_of_another_model(exchange: Exchange) -> None:
    """Only streams have the name that the model has behind the gateway."""
    for event in events(exchange, "message_start"):
        event["message"]["model"] = "/models/qwen"


@stream(MESSAGES, ORDER, "came in one event: clients wait for the whole text")
def sends_each_text_at_once(exchange: Exchange) -> None:
    """A gateway waits for a block to end before it passes it on."""
    kept: list[Part] = []
    for event in exchange.events:
        added = event.get("delta") or {}
        name = next((part for part in ("text", "thinking") if added.get(part)), None)
        last = kept[-1].get("delta") or {} if kept else {}
        if name and name in last and kept[-1]["index"] == event["index"]:
            kept[-1] = {**kept[-1], "delta": {**last, name: last[name] + added[name]}}
        else:
            kept.append(event)
    exchange.events = kept
