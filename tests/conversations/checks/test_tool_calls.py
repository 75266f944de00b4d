"""Tool calls are usable for a client: declared, valid, complete and requested."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from conversations.exchanges import TIME, TOOLS, WEATHER, answer, exchange
from pytest_vllm_gates.conversations.checks import tool_calls

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Answer, ToolCall

REQUEST = {"tools": TOOLS, "tool_choice": "auto"}
NAMED = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}


def called(*made: ToolCall, **fields: Any) -> Answer:
    return answer("", tool_calls=made, **fields)


def with_arguments(text: str) -> ToolCall:
    return replace(WEATHER, arguments=text)


@pytest.mark.parametrize(
    "reply",
    [
        answer(),
        called(WEATHER, TIME),
        called(replace(TIME, arguments='{"zone": "UTC"}')),
        called(with_arguments('{"ci'), finish_reason="length"),
    ],
    ids=["none", "two", "no parameters declared", "cut by the limit"],
)
def test_calls_that_fit_their_schema_are_valid(reply: Answer) -> None:
    assert list(tool_calls.valid(reply, REQUEST)) == []


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            replace(WEATHER, name="getWeather"),
            "tool_calls[0].name is 'getWeather'; declared are get_weather, get_time",
        ),
        (replace(WEATHER, name=""), "tool_calls[0].name is ''"),
        (with_arguments(""), "tool_calls[0].arguments is not JSON (Expecting value"),
        (
            with_arguments('{"city": "Os'),
            "tool_calls[0].arguments is not JSON (Unterminated",
        ),
        (with_arguments('{"city": "a"}{}'), "tool_calls[0].arguments is not JSON (Extra data"),
        (with_arguments('"{}"'), "tool_calls[0].arguments is not an object: '\"{}\"'"),
        (with_arguments("[]"), "tool_calls[0].arguments is not an object: '[]'"),
        (with_arguments("{}"), "tool_calls[0].arguments: 'city' is a required property"),
        (
            with_arguments('{"city": 7}'),
            "tool_calls[0].arguments.city: 7 is not of type 'string'",
        ),
    ],
)
def test_a_call_that_does_not_fit_is_a_fault(made: ToolCall, sentence: str) -> None:
    (fault,) = tool_calls.valid(called(made), REQUEST)
    assert fault.startswith(sentence)


def test_only_invalid_calls_are_reported() -> None:
    wrong = [replace(TIME, name="x"), *map(with_arguments, ("{", "[]", "{}"))]
    faults = list(tool_calls.valid(called(TIME, *wrong, TIME), REQUEST))
    assert [fault[:13] for fault in faults] == [f"tool_calls[{place}]" for place in (1, 2, 3, 4)]


def test_a_call_without_declared_tools_is_undeclared() -> None:
    (fault,) = tool_calls.valid(called(WEATHER), {})
    assert fault == "tool_calls[0].name is 'get_weather'; declared are none"


@pytest.mark.parametrize(
    ("reply", "sentences"),
    [
        (called(WEATHER), []),
        (answer("No."), ["no call came; content is 'No.'"]),
        (called(finish_reason="length"), ["the token limit cut the answer"]),
        (called(with_arguments("{}")), ["tool_calls[0].arguments: 'city' is a required property"]),
    ],
)
def test_a_sampled_answer_has_to_be_a_valid_call(reply: Answer, sentences: list[str]) -> None:
    assert list(tool_calls.one_valid_call(reply, REQUEST)) == sentences


@pytest.mark.parametrize(
    ("reply", "sentences"),
    [
        (called(WEATHER, finish_reason="tool_calls"), []),
        (called(WEATHER, TIME, finish_reason="tool_calls"),
         ["parallel_tool_calls is false, and 2 calls came: get_weather, get_time"]),
        (answer("No."), ["parallel_tool_calls is false, and 0 calls came: nothing"]),
        (answer("", finish_reason="length"), []),
        (called(WEATHER, finish_reason="length"), []),
        (called(WEATHER, TIME, finish_reason="length"),
         ["parallel_tool_calls is false, and 2 calls came: get_weather, get_time"]),
        (called(WEATHER, finish_reason="stop"),
         ["finish_reason is 'stop', and the answer has a call"]),
        (called(with_arguments("{}"), finish_reason="tool_calls"),
         ["tool_calls[0].arguments: 'city' is a required property"]),
    ],
)  # fmt: skip
def test_parallel_calls_are_faults_when_switched_off(reply: Answer, sentences: list[str]) -> None:
    assert list(tool_calls.one_at_a_time(reply, REQUEST)) == sentences


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (["a", "b"], None),
        (["a", None], "tool_calls[1].id is missing: its result cannot be sent back"),
        (["", "b"], "tool_calls[0].id is missing"),
        (["a", "a"], "tool_calls[1].id is 'a', which is another call's"),
    ],
)
def test_every_call_has_a_different_id(ids: list[str | None], sentence: str | None) -> None:
    faults = list(tool_calls.identified(called(*(replace(TIME, id=call_id) for call_id in ids))))
    assert faults[0].startswith(sentence) if sentence else faults == []


@pytest.mark.parametrize(
    ("reply", "tools", "sentence"),
    [
        (called(WEATHER), "auto", None),
        (answer(), "auto", None),
        (called(WEATHER, finish_reason="stop"), "named", None),
        (called(WEATHER, finish_reason="length"), "auto", None),
        (None, "auto", None),
        (
            answer(finish_reason="tool_calls"),
            "auto",
            "finish_reason is 'tool_calls', and the answer has no call",
        ),
        (
            called(WEATHER, TIME, finish_reason="stop"),
            "auto",
            "finish_reason is 'stop', and the answer has calls: get_weather, get_time",
        ),
        (
            called(WEATHER, finish_reason="stop"),
            "required",
            "finish_reason is 'stop', and the answer has calls: get_weather",
        ),
    ],
)
def test_calls_and_finish_reason_agree(
    reply: Answer | None, tools: str, sentence: str | None
) -> None:
    faults = list(tool_calls.finish(exchange(reply, tools=tools)))
    assert faults == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("reply", "fields", "sentence"),
    [
        (answer(), {"tools": "none"}, None),
        (answer(), {"tools": "auto"}, None),
        (called(WEATHER), {"tools": "auto"}, None),
        (called(TIME), {"tools": "required"}, None),
        (called(WEATHER), {"tools": "named", "request": NAMED}, None),
        (None, {"tools": "required"}, None),
        (answer(stop_reason="x"), {"tools": "required", "stop_at": "x"}, None),
        (answer(finish_reason="length"), {"tools": "required"}, None),
        (
            called(WEATHER),
            {"tools": "none"},
            "no tool may be called (none), and the answer calls get_weather",
        ),
        (called(TIME), {}, "no tool may be called (undeclared), and the answer calls get_time"),
        (
            answer("No."),
            {"tools": "required"},
            "a call was required, and none came; content is 'No.'",
        ),
        (
            answer("No."),
            {"tools": "named", "request": NAMED},
            "expected one call of get_weather, got nothing",
        ),
        (
            called(TIME),
            {"tools": "named", "request": NAMED},
            "expected one call of get_weather, got get_time",
        ),
        (
            called(WEATHER, WEATHER),
            {"tools": "named", "request": NAMED},
            "expected one call of get_weather, got get_weather, get_weather",
        ),
    ],
)
def test_tool_choice_is_kept(
    reply: Answer | None, fields: dict[str, Any], sentence: str | None
) -> None:
    faults = list(tool_calls.chosen(exchange(reply, **fields)))
    assert faults == ([sentence] if sentence else [])
