"""A conversation in each dialect: nothing is lost, and answers are read the same way."""

from __future__ import annotations

from typing import Any

import pytest

from dialects.made import ANSWER, CONTENT, MESSAGE, REASONING, RESPONSE
from pytest_vllm_gates.dialects import completions, messages, responses
from pytest_vllm_gates.dialects.notation import NoPlace

CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Rome"}]},
        {
            "role": "assistant",
            "reasoning": "I look.",
            "content": "Wait.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "a", "arguments": '{"x": 1}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": "And?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "a", "description": "A.", "parameters": {"type": "object"}},
        }
    ],
    "max_tokens": 7,
    "temperature": 0,
    "chat_template_kwargs": {"enable_thinking": False},
}


def test_a_chat_becomes_a_response() -> None:
    assert responses.request(CHAT) == {
        "store": False,
        "metadata": {"asked_by": "pytest-vllm-gates"},
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Rome"}],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "I look."}],
            },
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1_0",
                "call_id": "c1",
                "name": "a",
                "arguments": '{"x": 1}',
                "status": "completed",
            },
            {
                "type": "function_call",
                "id": "fc_1_1",
                "call_id": "c2",
                "name": "b",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "two"}],
            },
            {"type": "message", "role": "user", "content": "And?"},
        ],
        "max_output_tokens": 7,
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
        "tools": [
            {
                "type": "function",
                "name": "a",
                "description": "A.",
                "parameters": {"type": "object"},
                "strict": None,
            }
        ],
    }


def test_a_chat_becomes_a_message() -> None:
    assert messages.request(CHAT) == {
        "max_tokens": 7,
        "temperature": 0,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Rome"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I look.", "signature": messages.SIGNATURE},
                    {"type": "text", "text": "Wait."},
                    {"type": "tool_use", "id": "c1", "name": "a", "input": {"x": 1}},
                    {"type": "tool_use", "id": "c2", "name": "b", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [{"type": "text", "text": "two"}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "chat_template_kwargs": {"enable_thinking": False},
        "tools": [{"name": "a", "description": "A.", "input_schema": {"type": "object"}}],
    }


@pytest.mark.parametrize(
    ("choice", "response", "message"),
    [
        ("auto", "auto", {"type": "auto"}),
        ("none", "none", {"type": "none"}),
        ("required", "required", {"type": "any"}),
        (
            {"type": "function", "function": {"name": "a"}},
            {"type": "function", "name": "a"},
            {"type": "tool", "name": "a"},
        ),
    ],
)
def test_a_tool_choice_has_a_name_in_each_dialect(
    choice: Any, response: Any, message: dict[str, Any]
) -> None:
    chat = {**CHAT, "tool_choice": choice}
    assert responses.request(chat)["tool_choice"] == response
    assert messages.request(chat)["tool_choice"] == message


def test_parallel_calls_are_switched_off_in_each_dialect() -> None:
    chat = {**CHAT, "parallel_tool_calls": False}
    assert responses.request(chat)["parallel_tool_calls"] is False
    choice = messages.request(chat)["tool_choice"]
    assert choice == {"type": "auto", "disable_parallel_tool_use": True}


def test_a_format_has_a_place_in_each_dialect() -> None:
    schema = {"enum": ["a"]}
    named = {"name": "text", "schema": schema, "strict": True}
    chat = {**CHAT, "response_format": {"type": "json_schema", "json_schema": named}}
    assert responses.request(chat)["text"] == {"format": {"type": "json_schema", **named}}
    assert messages.request(chat)["output_config"] == {
        "format": {"type": "json_schema", "schema": schema}
    }


def test_only_messages_have_stop_sequences() -> None:
    chat = {**CHAT, "stop": ["x"]}
    assert messages.request(chat)["stop_sequences"] == ["x"]
    with pytest.raises(NoPlace, match="no stop strings"):
        responses.request(chat)


def test_a_count_request_has_no_limit() -> None:
    counted = messages.count_request({**CHAT, "stop": ["x"]})
    assert not set(counted) & set(messages.NOT_COUNTED)


def test_an_unknown_prompt_has_no_place() -> None:
    assert completions.request(CHAT, [1, 2])["prompt"] == [1, 2]
    with pytest.raises(NoPlace, match="does not return"):
        completions.request(CHAT, [])


def test_an_image_has_no_place() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    for dialect in (responses, messages):
        with pytest.raises(NoPlace, match="image_url"):
            dialect.request({**CHAT, "messages": [image]})


def test_answers_of_all_dialects_are_read_alike() -> None:
    for answer in (responses.answer(RESPONSE), messages.answer(MESSAGE)):
        assert (answer.reasoning, answer.content) == (REASONING, CONTENT)
        assert [call.name for call in answer.tool_calls] == ["get_weather"]
        assert (answer.finish_reason, answer.usage) == ("tool_calls", ANSWER.usage)


def test_cached_tokens_of_a_message_count_as_input() -> None:
    usage = {"input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 9}
    assert messages.answer({**MESSAGE, "usage": usage}).usage == ANSWER.usage


@pytest.mark.parametrize(
    ("status", "finish"),
    [("completed", "stop"), ("incomplete", "length"), ("failed", "failed")],
)
def test_a_response_ends_by_its_status(status: str, finish: str) -> None:
    body = {**RESPONSE, "output": RESPONSE["output"][:2], "status": status}
    assert responses.answer(body).finish_reason == finish


def test_a_completion_has_all_its_text_as_content() -> None:
    body = {
        "choices": [{"text": "a", "finish_reason": "stop", "token_ids": [1]}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    answer = completions.answer(body)
    assert (answer.content, answer.finish_reason, answer.token_ids) == ("a", "stop", (1,))


@pytest.mark.parametrize("wrong", [7, ["x"], {"text": "x"}])
def test_a_value_that_is_not_a_text_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a text"):
        messages.answer({**MESSAGE, "content": [{"type": "text", "text": wrong}]})
