"""The reference from a chat's answer: ties, limits, stop strings, and required calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dialects.made import ANSWER
from pytest_vllm_gates.client.answer import ToolCall, Usage
from pytest_vllm_gates.dialects.cases import DialectCase
from pytest_vllm_gates.dialects.yardstick import (
    chat_answer,
    cut_to,
    keeps_choice,
    late_word,
    near_tie,
)

CHOICE: dict[str, Any] = {
    "message": {
        "content": None,
        "reasoning": "They ask.",
        "tool_calls": [{"id": "c", "function": {"name": "get_weather", "arguments": "{}"}}],
    },
    "finish_reason": "tool_calls",
    "token_ids": [1, 2],
}
USAGE = {"prompt_tokens": 5, "completion_tokens": 9}


def case(**fields: Any) -> DialectCase:
    return DialectCase(name="a", conversation="plain", **fields)


def test_a_chat_is_read_like_the_others() -> None:
    answer = chat_answer({"choices": [CHOICE], "usage": USAGE})
    assert (answer.reasoning, answer.content, answer.usage) == ("They ask.", "", Usage(5, 9))
    assert answer.tool_calls == (ToolCall("get_weather", "{}", "c"),)
    assert (answer.finish_reason, answer.token_ids) == ("tool_calls", (1, 2))


def test_a_chat_of_another_form_is_refused() -> None:
    message = {**CHOICE["message"], "content": ["Paris"]}
    with pytest.raises(ValueError, match="is not a text"):
        chat_answer({"choices": [{**CHOICE, "message": message}], "usage": USAGE})


@pytest.mark.parametrize(
    ("scores", "tie"), [([-0.1, -3.0], False), ([-0.7, -0.8], True), ([0.0], False), ([], False)]
)
def test_two_tokens_that_are_about_as_likely_are_a_tie(scores: list[float], *, tie: bool) -> None:
    place = {"top_logprobs": [{"logprob": score} for score in scores]}
    assert near_tie({"choices": [{"logprobs": {"content": [place]}}]}) is tie
    assert not near_tie({"choices": [{}]})


def test_a_stop_string_is_a_late_word_that_only_the_answer_has() -> None:
    answer = replace(ANSWER, reasoning="waves", content="The waves are grey, the gulls are white.")
    assert late_word(answer) == "gulls"
    assert late_word(replace(answer, content="42")) == ""
    assert late_word(None) == ""


def test_a_limit_cuts_some_tokens_of_the_answer() -> None:
    assert cut_to(ANSWER, case(short_of=4)) == 5
    assert cut_to(ANSWER, case(short_of=12)) == 0
    assert cut_to(ANSWER, case()) == 0
    assert cut_to(None, case(short_of=4)) == 0


@pytest.mark.parametrize(
    ("choice", "calls", "keeps"),
    [
        ("", (), True),
        ("none", (), True),
        ("required", (), False),
        ("required", (ToolCall("a", "{}"),), True),
        ("required", (ToolCall("a", '{"x'),), False),
        ("get_time", (), False),
    ],
)
def test_a_chat_without_its_required_call_is_not_a_reference(
    choice: str, calls: tuple[ToolCall, ...], *, keeps: bool
) -> None:
    answer = replace(ANSWER, tool_calls=calls)
    assert keeps_choice(case(tool_choice=choice), answer) is keeps
