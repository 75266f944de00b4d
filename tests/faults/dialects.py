"""Servers whose APIs disagree, or whose streams break the rules of one: the dialects gate fails."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

from faults.fault import Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.exchange import Exchange
    from faults.fault import Change

FAULTS = Faults("dialects")
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMPLETIONS, COUNT = "/v1/completions", "/v1/messages/count_tokens"
ANSWERS = "every_dialect_answers"
TYPES = "bodies_have_the_official_types"
ORDER = "events_come_in_order"
READS = "official_clients_read_everything"
STREAMS = "a_stream_is_its_whole_answer"
MEANS = "dialects_mean_the_same"
LIMIT = "a_limit_is_told"
TOKENS = "dialects_count_the_same_tokens"
REFUSED = 400

Part = dict[str, Any]


def asked(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the requests of one dialect."""
    return _at(path, "request", check, says, lambda _: True)


def whole(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the whole answers of one dialect."""
    return _at(path, "anything", check, says, lambda exchange: not exchange.streamed)


def stream(path: str, check: str, says: str) -> Callable[[Change], Change]:
    """Make a fault of a function that changes the streams of one dialect."""
    return _at(path, "anything", check, says, lambda exchange: exchange.streamed)


def _at(
    path: str, on: Any, check: str, says: str, applies: Callable[[Exchange], bool]
) -> Callable[[Change], Change]:
    def declare(change: Change) -> Change:
        @functools.wraps(change)
        def alter(exchange: Exchange) -> None:
            if exchange.path == path and exchange.status < REFUSED and applies(exchange):
                change(exchange)

        return FAULTS.add(on, says=says, check=check)(alter)

    return declare


def events(exchange: Exchange, kind: str) -> list[Part]:
    """Return the events of a type."""
    return [event for event in exchange.events if event["type"] == kind]


def drop(exchange: Exchange, *kinds: str) -> None:
    """Leave out the events of some types."""
    exchange.events = [event for event in exchange.events if event["type"] not in kinds]


def items(exchange: Exchange, kind: str) -> Iterator[Part]:
    """Yield the output items of a type of a whole response."""
    for item in exchange.events[0]["output"]:
        if item["type"] == kind:
            yield item


def blocks(exchange: Exchange, kind: str) -> Iterator[Part]:
    """Yield the content blocks of a type of a whole message."""
    for block in exchange.events[0]["content"]:
        if block["type"] == kind:
            yield block


# Requests that a gateway or a server loses a part of.


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def forgets_instructions(exchange: Exchange) -> None:
    """The system prompt of a response is dropped."""
    exchange.body.pop("instructions", None)


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def forgets_the_system_prompt(exchange: Exchange) -> None:
    """The system prompt of a message is dropped."""
    exchange.body.pop("system", None)


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def reads_system_as_text_alone(exchange: Exchange) -> None:
    """A system prompt of blocks, as Claude Code sends it, is dropped."""
    if isinstance(exchange.body.get("system"), list):
        del exchange.body["system"]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def skips_the_developer(exchange: Exchange) -> None:
    """A role that the template does not know is left out."""
    given = exchange.body.get("input")
    if isinstance(given, list):
        exchange.body["input"] = [item for item in given if item.get("role") != "developer"]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def reads_the_first_part(exchange: Exchange) -> None:
    """Of a message in parts only the first is read."""
    for item in exchange.body.get("input") or ():
        if isinstance(item, dict) and isinstance(item.get("content"), list):
            item["content"] = item["content"][:1]


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def empties_tool_results(exchange: Exchange) -> None:
    """The output of a function call does not reach the model."""
    for item in exchange.body.get("input") or ():
        if isinstance(item, dict) and item.get("type") == "function_call_output":
            item["output"] = ""


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def drops_a_second_tool_result(exchange: Exchange) -> None:
    """Of several tool results in one message the first one is kept."""
    for message in exchange.body.get("messages") or ():
        if isinstance(message["content"], list):
            results = [each for each in message["content"] if each["type"] == "tool_result"]
            for result in results[1:]:
                message["content"].remove(result)


@asked(RESPONSES, TOKENS, "input tokens: chat ")
def drops_earlier_reasoning(exchange: Exchange) -> None:
    """Reasoning items of earlier turns are skipped."""
    given = exchange.body.get("input")
    if isinstance(given, list):
        exchange.body["input"] = [item for item in given if item.get("type") != "reasoning"]


@asked(MESSAGES, TOKENS, "input tokens: chat ")
def drops_the_thinking_switch(exchange: Exchange) -> None:
    """The template's keywords are dropped on one route."""
    exchange.body.pop("chat_template_kwargs", None)


@asked(MESSAGES, MEANS, "tool_calls[0].name: chat 'get_time', messages 'get_weather'")
def takes_any_tool_choice_for_auto(exchange: Exchange) -> None:
    """A named tool is only one of those that may be called."""
    if (exchange.body.get("tool_choice") or {}).get("type") == "tool":
        exchange.body["tool_choice"] = {"type": "auto"}


@asked(RESPONSES, MEANS, "tool_calls: ")
def forgets_that_a_tool_is_required(exchange: Exchange) -> None:
    """`required` is read as `auto`."""
    if exchange.body.get("tool_choice") == "required":
        exchange.body["tool_choice"] = "auto"


@asked(MESSAGES, MEANS, "tool_calls: 0 in the chat answer (none)")
def calls_tools_that_are_forbidden(exchange: Exchange) -> None:
    """`none` is read as `auto`."""
    if (exchange.body.get("tool_choice") or {}).get("type") == "none":
        exchange.body["tool_choice"] = {"type": "auto"}


@asked(MESSAGES, MEANS, "tool_calls: 1 in the chat answer (get_weather), 3 in the messages one")
def calls_in_parallel_all_the_same(exchange: Exchange) -> None:
    """`disable_parallel_tool_use` is dropped."""
    choice = exchange.body.get("tool_choice")
    if choice and choice.pop("disable_parallel_tool_use", None) and choice == {"type": "auto"}:
        del exchange.body["tool_choice"]


@asked(MESSAGES, MEANS, "stop string: chat ")
def ignores_stop_sequences(exchange: Exchange) -> None:
    """Anthropic's name of stop strings is not known."""
    exchange.body.pop("stop_sequences", None)


# Whole answers.


@whole(MESSAGES, ANSWERS, "answered 501: no tools")
def has_no_tools(exchange: Exchange) -> None:
    """One API does without tools."""
    if exchange.body.get("tools"):
        exchange.status = 501
        exchange.events = [{"type": "error", "error": {"type": "api_error", "message": "no tools"}}]


@whole(RESPONSES, ANSWERS, "answers")
def names_the_model_otherwise(exchange: Exchange) -> None:
    """A gateway answers with the name that the model has behind it."""
    exchange.events[0]["model"] = "/models/qwen"


@whole(MESSAGES, TYPES, "the body: role: Field required")
def leaves_the_role_out(exchange: Exchange) -> None:
    """Fields with one value are not sent."""
    del exchange.events[0]["role"]


@whole(RESPONSES, TYPES, "arguments: Input should be a valid string")
def gives_arguments_as_an_object(exchange: Exchange) -> None:
    """Arguments are text that holds JSON."""
    for item in items(exchange, "function_call"):
        item["arguments"] = {"city": "Oslo"}


@whole(RESPONSES, TYPES, "is not known to the official client")
def has_an_item_nobody_knows(exchange: Exchange) -> None:
    """Reasoning comes as an item of a type of the server's own."""
    for item in items(exchange, "reasoning"):
        item["type"] = "thinking"


@whole(RESPONSES, MEANS, "reasoning: empty in the responses answer")
def loses_reasoning(exchange: Exchange) -> None:
    """The reasoning item is not made."""
    output = exchange.events[0]["output"]
    exchange.events[0]["output"] = [item for item in output if item["type"] != "reasoning"]


@whole(MESSAGES, MEANS, "content: ")
def shows_thinking_as_text(exchange: Exchange) -> None:
    """Thinking blocks are not made: what was thought is text."""
    for block in blocks(exchange, "thinking"):
        text = block.pop("thinking")
        del block["signature"]
        block |= {"type": "text", "text": text}


@whole(RESPONSES, MEANS, "tool_calls: 3 in the chat answer")
def gives_the_first_call(exchange: Exchange) -> None:
    """Of parallel calls one is kept."""
    calls = list(items(exchange, "function_call"))
    for call in calls[1:]:
        exchange.events[0]["output"].remove(call)


@whole(MESSAGES, MEANS, "tool_calls[0].arguments: chat ")
def gives_calls_no_input(exchange: Exchange) -> None:
    """The input of a call is empty."""
    for block in blocks(exchange, "tool_use"):
        block["input"] = {}


@whole(MESSAGES, MEANS, "finish_reason: chat 'tool_calls', messages 'stop'")
def ends_a_turn_at_a_call(exchange: Exchange) -> None:
    """An agent takes a call for the end of the conversation."""
    if exchange.events[0]["stop_reason"] == "tool_use":
        exchange.events[0]["stop_reason"] = "end_turn"


@whole(MESSAGES, MEANS, "stop string: chat ")
def tells_no_stop_sequence(exchange: Exchange) -> None:
    """Which stop string ended an answer is not told."""
    exchange.events[0]["stop_sequence"] = None


@whole(MESSAGES, LIMIT, "the limit cut it, and it ends in stop_reason 'end_turn'")
def tells_no_limit(exchange: Exchange) -> None:
    """A message that was cut is told as whole."""
    if exchange.events[0]["stop_reason"] == "max_tokens":
        exchange.events[0]["stop_reason"] = "end_turn"


@whole(RESPONSES, LIMIT, "the limit cut it, and it ends in status 'completed'")
def completes_what_was_cut(exchange: Exchange) -> None:
    """A response that was cut is told as whole."""
    exchange.events[0] |= {"status": "completed", "incomplete_details": None}


@whole(RESPONSES, LIMIT, "incomplete_details.reason is None")
def tells_no_reason(exchange: Exchange) -> None:
    """A response is incomplete, and nobody knows why."""
    exchange.events[0]["incomplete_details"] = None


@asked(RESPONSES, LIMIT, "tokens, and the limit is ")
def knows_no_max_output_tokens(exchange: Exchange) -> None:
    """The limit has another name in every API."""
    exchange.body.pop("max_output_tokens", None)


@whole(RESPONSES, TOKENS, "input tokens: chat ")
def counts_nothing(exchange: Exchange) -> None:
    """Usage is there, and zero."""
    exchange.events[0]["usage"] |= {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


@whole(RESPONSES, TOKENS, "usage is missing")
def has_no_usage(exchange: Exchange) -> None:
    """Usage is not made in one API."""
    exchange.events[0]["usage"] = None


@whole(COUNT, TOKENS, "tokens of the prompt: chat ")
def counts_without_tools(exchange: Exchange) -> None:
    """The route that counts leaves declarations out."""
    if exchange.body.get("tools"):
        exchange.events[0]["input_tokens"] -= 20


@whole("/v1/responses/render", TOKENS, "the prompt's tokens differ from token 1 on")
def renders_something_else(exchange: Exchange) -> None:
    """The route that renders has a template of its own."""
    ids = exchange.events[0]["token_ids"]
    ids[1] = ids[2]


@asked("/v1/messages/render", TOKENS, "temperature 0 was asked for, 1.0 is in effect")
def samples_with_a_default(exchange: Exchange) -> None:
    """One API drops the temperature: what it answers is not repeatable."""
    exchange.body.pop("temperature", None)


@whole(COMPLETIONS, MEANS, "content: ")
def cuts_a_completion(exchange: Exchange) -> None:
    """A completion's text ends early."""
    for choice in exchange.choices:
        choice["text"] = choice["text"][:-4]


# Streams of the Responses API.


@stream(RESPONSES, READS, "the stream ends without any of")
def never_completes(exchange: Exchange) -> None:
    """The last event is not sent."""
    drop(exchange, "response.completed")


@stream(RESPONSES, ORDER, "sequence_number ")
def numbers_nothing(exchange: Exchange) -> None:
    """Every event has the number 0."""
    for event in exchange.events:
        event["sequence_number"] = 0


@stream(RESPONSES, ORDER, "response.output_text.done has ")
def repeats_text_in_done_events(exchange: Exchange) -> None:
    """What is done is sent once more, twice."""
    for event in events(exchange, "response.output_text.done"):
        event["text"] *= 2


@stream(RESPONSES, ORDER, " names item ")
def makes_ids_anew(exchange: Exchange) -> None:
    """Each event has an id of its own."""
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
    """The final response has an id of its own."""
    exchange.events[-1]["response"]["id"] += "-final"


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


@stream(RESPONSES, ORDER, "and the deltas ")
def loses_a_delta(exchange: Exchange) -> None:
    """A delta of a call's arguments is lost, and the done event has it."""
    deltas = events(exchange, "response.function_call_arguments.delta")
    if deltas:
        exchange.events.remove(deltas[0])
        for number, event in enumerate(exchange.events):
            event["sequence_number"] = number


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


# Streams of the Messages API.


@stream(MESSAGES, ORDER, "the last event is 'message_delta', not 'message_stop'")
def never_stops(exchange: Exchange) -> None:
    """The last event is not sent."""
    drop(exchange, "message_stop")


@stream(MESSAGES, ORDER, "message_delta comes 0 times")
def gives_no_stop_reason(exchange: Exchange) -> None:
    """The stop reason and the usage are not sent."""
    drop(exchange, "message_delta")


@stream(MESSAGES, ORDER, "the event is called ''")
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
    """Only whole answers say that a tool is to be called."""
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
