"""JSON that is too deep to read does not end a gate: it is judged as invalid."""

from __future__ import annotations

from dataclasses import replace

from conversations.exchanges import TOOLS, WEATHER, answer, exchange
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.conversations.checks import content, events, tool_calls
from pytest_vllm_gates.conversations.checks.agreement import canonical
from pytest_vllm_gates.conversations.checks.tokens import _leaves
from pytest_vllm_gates.conversations.checks.tool_calls import altered_arguments
from pytest_vllm_gates.conversations.forced_calls import ForcedReply

DEEP = "[" * 100_000
CALL = replace(WEATHER, arguments=DEEP)


def test_deep_json_in_arguments_is_a_fault() -> None:
    (fault,) = tool_calls.valid(
        answer("", tool_calls=(CALL,)), {"tools": TOOLS, "tool_choice": "auto"}
    )
    assert "arguments is not JSON" in fault
    assert canonical(DEEP) == DEEP
    assert [*_leaves(CALL)] == [DEEP]


def test_deep_json_in_content_is_a_fault() -> None:
    reply = answer(DEEP, reasoning=f"so {{{DEEP}")
    (fault,) = content.json_value(exchange(reply, format="json_schema", json_schema={}))
    assert fault.startswith("content is not one JSON value")


def test_deep_json_in_an_event_is_a_fault() -> None:
    body = f"data: {DEEP}\n\ndata: [DONE]\n\n".encode()
    recording = Recording("text/event-stream", ((0.1, body),))
    assert next(events.faults(recording)).startswith("an event is not JSON")
    assert events.chunks(recording) == []


def test_deep_json_in_a_forced_call_is_a_fault() -> None:
    reply = answer("Noted.", tool_calls=(CALL,))
    forced = ForcedReply(
        "quotes", {"text": "a"}, exact=True, request={}, whole=reply, streamed=reply, widened=reply
    )
    faults = [*altered_arguments(forced)]
    assert faults[0].startswith("whole: text is missing")
