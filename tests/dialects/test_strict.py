"""The official types, strictly: a missing, unknown or wrongly typed field is reported once."""

from __future__ import annotations

from typing import Any

import pytest

from dialects.made import MESSAGE, RESPONSE, events, message_events, reply, response_events
from pytest_vllm_gates.dialects import strict

COMPLETION: dict[str, Any] = {
    "id": "c",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": "a", "finish_reason": "stop", "logprobs": None}],
}


def test_right_answers_have_no_fault() -> None:
    assert strict.faults(reply("responses", "whole", RESPONSE)) == []
    assert strict.faults(reply("messages", "whole", MESSAGE)) == []
    assert strict.faults(reply("completions", "whole", COMPLETION)) == []
    streams = {"responses": response_events(), "messages": message_events()}
    for dialect, data in streams.items():
        assert strict.faults(reply(dialect, "stream", {}, events=events(data))) == []


def test_additional_fields_of_the_server_are_allowed() -> None:
    assert strict.faults(reply("responses", "whole", {**RESPONSE, "metrics": {"x": 1}})) == []


def test_fields_that_later_clients_require_are_optional() -> None:
    usage = {**RESPONSE["usage"], "input_tokens_details": {"cached_tokens": 0}}
    assert strict.faults(reply("responses", "whole", {**RESPONSE, "usage": usage})) == []
    data = response_events()
    data[-1]["response"] = {**RESPONSE, "usage": usage}
    assert strict.faults(reply("responses", "stream", {}, events=events(data))) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({**RESPONSE, "id": None}, "the body: id: Input should be a valid string, got None"),
        (
            {key: value for key, value in RESPONSE.items() if key != "tools"},
            "the body: tools: Field required",
        ),
        (
            {**RESPONSE, "output": [{**RESPONSE["output"][2], "arguments": {}}]},
            "the body: output.0.arguments: Input should be a valid string, got {}",
        ),
        (
            {**RESPONSE, "output": [{**RESPONSE["output"][0], "type": "thinking"}]},
            "the body: output.0.type 'thinking' is not known to the official client",
        ),
    ],
)
def test_a_fault_of_a_body_names_the_field(body: dict[str, Any], says: str) -> None:
    (fault,) = strict.faults(reply("responses", "whole", body))
    assert fault.startswith(says)


def test_a_fault_of_many_events_is_reported_once() -> None:
    data = response_events()
    for event in data:
        if event["type"] == "response.function_call_arguments.delta":
            event["output_index"] = "2"
    (fault,) = strict.faults(reply("responses", "stream", {}, events=events(data)))
    assert fault == (
        "response.function_call_arguments.delta: output_index: "
        "Input should be a valid integer, got '2'"
    )


def test_an_event_that_no_client_knows_is_reported() -> None:
    data = [{**message_events()[0], "type": "message_begin"}]
    (fault,) = strict.faults(reply("messages", "stream", {}, events=events(data)))
    assert fault == "message_begin: type 'message_begin' is not known to the official client"


def test_pings_are_allowed() -> None:
    assert strict.faults(reply("messages", "stream", {}, events=events([{"type": "ping"}]))) == []


def test_chunks_of_a_completion_have_no_finish_reason_but_the_last() -> None:
    chunk = {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "finish_reason": None}]}
    data = [{**chunk, "type": ""}]
    assert strict.faults(reply("completions", "stream", {}, events=events(data))) == []
