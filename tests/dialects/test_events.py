"""Rules of streams: a valid one has no fault, and each change causes one fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dialects.made import RESPONSE, events, message_events, response_events
from pytest_vllm_gates.dialects import events_messages, events_responses
from pytest_vllm_gates.dialects.types import Event, events_of

if TYPE_CHECKING:
    from collections.abc import Callable

Data = list[dict[str, Any]]


def at(data: Data, kind: str) -> dict[str, Any]:
    return next(event for event in data if event["type"] == kind)


def without(kind: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[:] = [event for event in data if event["type"] != kind]

    return change


def with_field(kind: str, name: str, value: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        at(data, kind)[name] = value

    return change


def within(kind: str, name: str, **fields: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        event = at(data, kind)
        event[name] = {**event[name], **fields}

    return change


def begun_as(status: str) -> Callable[[Data], None]:
    return within("response.created", "response", status=status)


def cut(data: Data) -> None:
    data[-1]["response"] = {**RESPONSE, "status": "incomplete"}


def goes_on(data: Data) -> None:
    data.append({**data[-2], "sequence_number": data[-1]["sequence_number"] + 1})


def another_item(data: Data) -> None:
    data[-1]["response"] = {**RESPONSE, "output": RESPONSE["output"][:2]}


def other_text(data: Data) -> None:
    data[-1]["response"] = {
        **RESPONSE,
        "output": [*RESPONSE["output"][:2], {**RESPONSE["output"][2], "arguments": "{}"}],
    }


def test_right_streams_have_no_fault() -> None:
    assert list(events_responses.faults(events(response_events()))) == []
    assert list(events_messages.faults(events(message_events()))) == []
    assert list(events_messages.unreadable_inputs(events(message_events()))) == []


def test_a_message_delta_may_count_the_input_again_or_not() -> None:
    data = message_events()
    for usage in ({"output_tokens": 9}, {"output_tokens": 9, "input_tokens": 5}):
        at(data, "message_delta")["usage"] = usage
        assert list(events_messages.faults(events(data))) == []


def test_an_empty_stream_is_a_fault() -> None:
    assert list(events_responses.faults(())) == ["the stream has no event"]
    assert list(events_messages.faults(())) == ["the stream has no event"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without("response.created"), "the first event is 'response.in_progress'"),
        (without("response.completed"), "0 events end the stream (none)"),
        (cut, "its response has the status 'incomplete'"),
        (goes_on, "response.output_item.done comes after response.completed"),
        (with_field("response.completed", "sequence_number", 0), "sequence_number 0 follows"),
        (with_field("response.output_text.delta", "item_id", "x"), "names item 'x'"),
        (with_field("response.output_text.delta", "output_index", 2), "no item is open there"),
        (with_field("response.output_text.done", "text", "ParisParis"), "has 'ParisParis'"),
        (with_field("response.output_item.added", "output_index", 4), "and 0 is next"),
        (without("response.content_part.added"), "comes before its content part is added"),
        (without("response.output_item.done"), "item at 0 is never done"),
        (begun_as("completed"), "response.created has a response with the status 'completed'"),
        (within("response.output_item.added", "item", arguments="{}"), "is added with '{}' in it"),
        (within("response.output_item.done", "item", status="in_progress"), "is done with the st"),
        (within("response.output_item.added", "item", status="completed"), "is added with the sta"),
        (within("response.content_part.added", "part", text="So"), "part is added with 'So' in it"),
        (within("response.content_part.done", "part", text="Par"), "part is done with 'Par', and"),
        (without("response.output_text.done"), "response.output_text.done never comes for the"),
        (without("response.content_part.done"), "content part 0 of the item at 0 is never done"),
        (
            without("response.function_call_arguments.done"),
            "response.function_call_arguments.done never comes for the item at 2",
        ),
        (
            lambda data: data.insert(3, {"type": "error", "message": "full"}),
            "the stream has an error: 'full'",
        ),
        (another_item, "response.completed has the items"),
        (other_text, "response.completed has a function_call item"),
    ],
)
def test_fault_of_a_responses_stream_is_reported(change: Callable[[Data], None], says: str) -> None:
    data = response_events()
    change(data)
    assert says in "; ".join(events_responses.faults(events(data)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without("message_start"), "the first event is 'content_block_start'"),
        (without("message_stop"), "the last event is 'message_delta'"),
        (without("message_delta"), "message_delta comes 0 times"),
        (without("content_block_stop"), "block 1 starts while block 0 is open"),
        (without("content_block_start"), "names block 0, which is not open"),
        (with_field("content_block_start", "index", 3), "a block starts with index 3, and 0"),
        (
            with_field("content_block_start", "content_block", {"type": "text", "text": "x"}),
            "a text block starts with text 'x'",
        ),
        (
            with_field("content_block_delta", "delta", {"type": "text_delta", "text": "x"}),
            "a text_delta comes in a block of type 'thinking'",
        ),
        (
            with_field("message_delta", "usage", {"output_tokens": 0}),
            "message_delta counts no output_tokens",
        ),
        (
            with_field("message_delta", "usage", {"output_tokens": 9, "input_tokens": 6}),
            "message_start counts 5 input tokens, message_delta 6",
        ),
        (with_field("message_delta", "delta", {}), "message_delta has no stop_reason"),
        (
            with_field("message_start", "message", {"content": ["x"], "stop_reason": "end_turn"}),
            "message_start has the stop_reason 'end_turn'",
        ),
        (
            lambda data: data.insert(3, {"type": "error", "error": {"message": "full"}}),
            "the stream has an error: {'message': 'full'}",
        ),
    ],
)
def test_fault_of_a_messages_stream_is_reported(change: Callable[[Data], None], says: str) -> None:
    data = message_events()
    change(data)
    assert says in "; ".join(events_messages.faults(events(data)))


def test_pings_may_come_anywhere() -> None:
    data = [each for event in message_events() for each in (event, {"type": "ping"})]
    assert list(events_messages.faults(events(data))) == []


def test_an_event_with_another_name_is_reported() -> None:
    told = (Event("", message_events()[0]), *events(message_events())[1:])
    (fault,) = events_messages.faults(told)
    assert fault == "the event has the name '', and its data has the type 'message_start'"


def test_an_input_that_is_not_an_object_is_reported_unless_the_limit_cut_it() -> None:
    data = message_events()
    data[-4]["delta"]["partial_json"] = '{"city": "Os'
    (fault,) = events_messages.unreadable_inputs(events(data))
    assert fault.startswith("the input of block 2 is not a JSON object")
    data[-2]["delta"]["stop_reason"] = "max_tokens"
    assert list(events_messages.unreadable_inputs(events(data))) == []


@pytest.mark.parametrize(
    ("response", "faults"),
    [
        (
            {"incomplete_details": {"reason": "max_output_tokens"}, "output": []},
            [],
        ),
        (
            {"incomplete_details": None, "output": []},
            ["incomplete_details.reason is None, not 'max_output_tokens'"],
        ),
        (
            {
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{"type": "message", "status": "completed"}],
            },
            ["the response is incomplete, and its last item (message) is completed"],
        ),
    ],
)
def test_a_cut_response_gives_the_reason(response: dict[str, Any], faults: list[str]) -> None:
    assert list(events_responses.cut_faults(response)) == faults


def test_events_are_read_as_clients_read_them() -> None:
    data = b': ping\r\n\r\nevent: a\r\ndata: {"type": "a"}\r\n\r\ndata: [1]\n\ndata: [DONE]\n\n'
    read, done = events_of(data)
    assert done
    assert read == (Event("a", {"type": "a"}), Event("", {"unreadable": "[1]"}))
    assert events_of(b'data: {"type": "b"}') == ((Event("", {"type": "b"}),), False)
