"""An answer follows its request: a format, a strict tool, a named tool, a begun answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conversations.exchanges import TIME, TOOLS, WEATHER, answer
from pytest_vllm_gates.client.answer import Usage
from pytest_vllm_gates.conversations.checks import content, reasoning, tool_calls

WORDS, REGEX = "vermilion ultramarine", "vermilion [0-9]{3}"
BEGUN = "The capital of France is"


def format_faults(text: str, kind: str, **fields: Any) -> list[str]:
    return [*content.not_as_requested(answer(text, **fields), kind, WORDS, REGEX)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("enum", f'"{WORDS}"'),
        ("enum", f'\n"{WORDS}" '),
        ("regex", "vermilion 123"),
        ("object", "{}"),
    ],
)
def test_an_answer_in_its_format_is_right(kind: str, text: str) -> None:
    assert format_faults(text, kind) == []


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("enum", "Paris", "content is not one JSON value (Expecting value"),
        ("enum", '"red"', "content is '\"red\"', and the schema allows only 'vermilion ultra"),
        ("regex", "Paris", "content does not match 'vermilion [0-9]{3}': 'Paris'"),
        ("object", "[]", "content is '[]', and a JSON object was requested"),
    ],
)
def test_an_answer_in_another_format_is_a_fault(kind: str, text: str, sentence: str) -> None:
    (found,) = format_faults(text, kind)
    assert found.startswith(sentence)


def test_a_format_in_the_reasoning_is_reported() -> None:
    (found,) = format_faults("", "object", reasoning='so {"a": 1}')
    assert found.endswith("; reasoning contains it")


def test_a_call_or_a_cut_answer_has_no_format() -> None:
    assert format_faults("Paris", "enum", finish_reason="length") == []
    assert format_faults("", "enum", tool_calls=(WEATHER,)) == []


def test_white_space_until_the_limit_is_a_fault() -> None:
    running = answer('{"hue"' + "\r" * 40, finish_reason="length")
    assert [*content.blanks(running)] == [
        "the answer ends in 40 characters of white space, at the limit: '{\"hue\"'"
    ]
    assert [*content.blanks(replace(running, finish_reason="stop"))] == []
    assert [*content.blanks(replace(running, content='{"hue": "red'))] == []


STRICT = {"tools": TOOLS, "max_tokens": 20}


def test_a_strict_tools_arguments_are_valid() -> None:
    short = Usage(10, 19)
    right = answer("", tool_calls=(WEATHER,), usage=short)
    wrong = answer("", tool_calls=(replace(WEATHER, arguments="{}"),), usage=short)
    assert [*tool_calls.out_of_schema(right, STRICT, "<call>")] == []
    assert [*tool_calls.out_of_schema(wrong, STRICT, "<call>")] == [
        "tool_calls[0].arguments: 'city' is a required property"
    ]


def test_white_space_is_the_only_fault_of_a_cut_call() -> None:
    cut = answer("", tool_calls=(replace(WEATHER, arguments="{}"),))
    assert [*tool_calls.out_of_schema(cut, STRICT, "<call> city")] == []
    assert [*tool_calls.out_of_schema(cut, STRICT, "<call>" + " " * 33)] == [
        "the call ends in 33 characters of white space, at the limit"
    ]


def test_another_tool_than_the_named_is_a_fault() -> None:
    request = {"tool_choice": {"type": "function", "function": {"name": "get_time"}}}
    right, wrong = (answer("", tool_calls=(call,)) for call in (TIME, WEATHER))
    assert [*tool_calls.other_than_named(right, request)] == []
    assert [*tool_calls.other_than_named(wrong, request)] == [
        "expected one call of get_time, got get_weather"
    ]
    assert [*tool_calls.other_than_named(answer(""), request)] == [
        "expected one call of get_time, got nothing"
    ]


@pytest.mark.parametrize(
    ("reply", "tokens", "sentences"),
    [
        (answer(" Paris."), 10, []),
        (answer(" Paris."), None, []),
        (answer(""), 10, []),
        (
            answer(" Paris."),
            12,
            [
                "the prompt has 10 tokens, and 12 if it ends in the text to continue: the server "
                "begins a new answer"
            ],
        ),
        (
            answer(f"{BEGUN} Paris."),
            10,
            [
                "the answer repeats the text that it has to continue: "
                "'The capital of France is Paris.'"
            ],
        ),
        (
            answer("", reasoning=" Paris."),
            10,
            ["the continuation is in reasoning: ' Paris.'"],
        ),
    ],
)
def test_a_begun_answer_is_continued(reply: Any, tokens: int | None, sentences: list[str]) -> None:
    assert [*reasoning.continuation(reply, BEGUN, tokens)] == sentences
