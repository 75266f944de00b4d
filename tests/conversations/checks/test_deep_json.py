"""JSON too deep to be read ends no gate: it is judged as what it is, none."""

from __future__ import annotations

from dataclasses import replace

from conversations.exchanges import TOOLS, WEATHER, answer, exchange
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.conversations.checks import content, framing, tool_calls
from pytest_vllm_gates.conversations.checks.agreement import canonical
from pytest_vllm_gates.conversations.checks.tokens import _leaves
from pytest_vllm_gates.conversations.checks.tool_calls import altered_arguments
from pytest_vllm_gates.conversations.forced_calls import ForcedReply

DEEP = "[" * 100_000
CALL = replace(WEATHER, arguments=DEEP)


def test_in_the_arguments_of_a_call() -> None:
    (found,) = tool_calls.valid(
        answer("", tool_calls=(CALL,)), {"tools": TOOLS, "tool_choice": "auto"}
    )
    assert "arguments is no JSON" in found
    assert canonical(DEEP) == DEEP
    assert [*_leaves(CALL)] == [DEEP]


def test_in_the_content() -> None:
    whole = answer(DEEP, reasoning=f"so {{{DEEP}")
    (found,) = content.json_value(exchange(whole, format="json_schema", json_schema={}))
    assert found.startswith("content is not one JSON value")


def test_in_an_event() -> None:
    body = f"data: {DEEP}\n\ndata: [DONE]\n\n".encode()
    recording = Recording("text/event-stream", ((0.1, body),))
    assert next(framing.faults(recording)).startswith("an event is no JSON")
    assert [*framing.unrequested_usage(recording)] == []


def test_in_what_was_written_on_purpose() -> None:
    whole = answer("Noted.", tool_calls=(CALL,))
    reply = ForcedReply(
        "quotes", {"text": "a"}, exact=True, request={}, whole=whole, streamed=whole, widened=whole
    )
    found = [*altered_arguments(reply)]
    assert found[0].startswith("whole: text is missing")
