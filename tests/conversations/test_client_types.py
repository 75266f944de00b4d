"""Answers are read with the types of the official client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from conversations.checks.streams import CALLS, CHUNKS, COUNTED, altered, recording
from conversations.exchanges import answer
from pytest_vllm_gates.client.answer import Recording, ToolCall
from pytest_vllm_gates.conversations.client_types import (
    assembly_faults,
    body_faults,
    chunk_faults,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": "{}"},
}
BODY: dict[str, Any] = {
    "id": "chat-1",
    "object": "chat.completion",
    "created": 7,
    "model": "qwen3.5",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning": "Hm.",
                "tool_calls": [CALL],
            },
            "finish_reason": "tool_calls",
            "stop_reason": None,
        }
    ],
    "usage": COUNTED,
}


def body_sentences(change: Callable[[dict[str, Any]], object]) -> list[str]:
    (changed,) = altered(0, change, [BODY])
    return [*body_faults(recording(json.dumps(changed).encode(), "application/json"))]


def test_right_answers_have_right_types() -> None:
    assert body_sentences(lambda _: None) == []
    assert [*chunk_faults(CHUNKS), *chunk_faults(CALLS)] == []
    assert [*body_faults(Recording())] == []


def test_fields_the_client_does_not_know_are_allowed() -> None:
    assert body_sentences(lambda body: body.update(novelty={"of": 1})) == []
    assert [*chunk_faults(altered(1, lambda chunk: chunk.update(novelty=[1])))] == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda body: body.update(created="7"), "whole answer: created: Input should be a valid"),
        (lambda body: body.pop("id"), "whole answer: id: Field required"),
        (
            lambda body: body["choices"][0].update(finish_reason="eos"),
            "whole answer: choices.0.finish_reason: Input should be 'stop',",
        ),
        (
            lambda body: body["usage"].update(completion_tokens=1.5),
            "whole answer: usage.completion_tokens: Input should be a valid integer",
        ),
    ],
)
def test_a_wrong_field_of_a_whole_answer_is_a_fault(
    change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    (found,) = body_sentences(change)
    assert found.startswith(sentence)


def test_arguments_that_are_not_a_text_are_one_fault() -> None:
    function: dict[str, Any] = {"name": "get_weather", "arguments": {}}
    wrong = [{**CALL, "function": function}]
    assert body_sentences(lambda body: body["choices"][0]["message"].update(tool_calls=wrong)) == [
        "whole answer: choices.0.message.tool_calls.0.function.arguments: "
        "Input should be a valid string, got {}"
    ]


def test_a_fault_of_many_chunks_is_reported_once() -> None:
    assert [*chunk_faults([{**chunk, "created": None} for chunk in CHUNKS])] == [
        "chunk: created: Input should be a valid integer, got None"
    ]


def test_a_body_that_is_not_json_is_a_fault() -> None:
    (sentence,) = body_faults(recording(b"<html>"))
    assert sentence.startswith("whole answer: it: Invalid JSON")


def test_the_official_client_reads_the_chunks_contents() -> None:
    text = answer("東京 ☔")
    calls = answer(
        "",
        tool_calls=(
            ToolCall("get_weather", '{"city": "Oslo"}', "call-1"),
            ToolCall("get_time", "{}", "call-2"),
        ),
    )
    assert [*assembly_faults(CHUNKS, text), *assembly_faults(CALLS, calls)] == []
    assert [*assembly_faults(CHUNKS, answer("東京"))] == [
        "the openai client reads content as '東京 ☔', the chunks have '東京'"
    ]


def test_a_repeated_role_is_appended() -> None:
    twice = altered(2, lambda chunk: chunk["choices"][0]["delta"].update(role="assistant"))
    assert [*assembly_faults(twice, answer("東京 ☔"))] == [
        "the openai client reads role as 'assistantassistant', the chunks have 'assistant'"
    ]


def test_a_stream_the_official_client_cannot_read_is_a_fault() -> None:
    broken = altered(
        2, lambda chunk: chunk["choices"][0]["delta"]["tool_calls"][0].pop("index"), CALLS
    )
    (sentence,) = assembly_faults(broken, answer(""))
    assert sentence.startswith("the openai client cannot read the stream: ")
