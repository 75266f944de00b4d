"""Every field in which a streamed answer differs from the whole one is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage
from pytest_vllm_gates.conversations.checks.agreement import canonical, differences, divergence

WEATHER = ToolCall("get_weather", '{"city": "Oslo", "days": 2}', "call-1")
TIME = ToolCall("get_time", "{}", "call-2")
WHOLE = Answer(
    reasoning="I should ask.",
    content="It is cold.",
    tool_calls=(WEATHER, TIME),
    finish_reason="tool_calls",
    usage=Usage(10, 20),
)


def told(**changes: Any) -> list[str]:
    return differences(WHOLE, replace(WHOLE, chunks=7, **changes))


def test_equal_answers_have_no_differences() -> None:
    assert told() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"content": "It is cold.\n"},
        {"reasoning": "\n\nI should ask. "},
        {"tool_calls": (replace(WEATHER, id="other"), TIME)},
        {"tool_calls": (replace(WEATHER, arguments='{"days":2,"city":"Oslo"}'), TIME)},
        {"tool_calls": (replace(WEATHER, arguments='{"city": "\\u004fslo", "days": 2}'), TIME)},
    ],
    ids=["space after", "space around", "another id", "order of keys", "escapes"],
)
def test_invisible_differences_do_not_count(changes: dict[str, Any]) -> None:
    assert told(**changes) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"content": "It is hot."},
            "content: differs from character 6 on: whole 'cold.', streamed 'hot.'",
        ),
        ({"content": "It is"}, "content: differs from character 5 on: whole ' cold.', streamed ''"),
        ({"content": "It  is cold."}, "content: differs from character 3 on"),
        ({"content": ""}, "content: empty in the streamed answer, 'It is cold.' in the whole one"),
        ({"reasoning": ""}, "reasoning: empty in the streamed answer, 'I should ask.'"),
        ({"finish_reason": "stop"}, "finish_reason: whole 'tool_calls', streamed 'stop'"),
        ({"finish_reason": None}, "finish_reason: whole 'tool_calls', streamed None"),
        ({"usage": Usage(10, 21)}, "usage: whole Usage(prompt_tokens=10, completion_tokens=20)"),
        ({"usage": None}, "usage: whole Usage"),
        (
            {"tool_calls": (WEATHER,)},
            "tool_calls: 2 in the whole answer (get_weather, get_time), 1 in the streamed one",
        ),
        ({"tool_calls": ()}, "0 in the streamed one (none)"),
        (
            {"tool_calls": (WEATHER, replace(TIME, name="get_timeget_time"))},
            "tool_calls[1].name: whole 'get_time', streamed 'get_timeget_time'",
        ),
        (
            {"tool_calls": (replace(WEATHER, arguments=""), TIME)},
            'tool_calls[0].arguments: whole \'{"city": "Oslo", "days": 2}\', streamed \'\'',
        ),
        (
            {"tool_calls": (replace(WEATHER, arguments='{"city": "Oslo", "days": "2"}'), TIME)},
            "tool_calls[0].arguments",
        ),
        (
            {"tool_calls": (replace(WEATHER, id=None), TIME)},
            "tool_calls[0].id present: whole True, streamed False",
        ),
        ({"tool_calls": (TIME, WEATHER)}, "tool_calls[0].name"),
    ],
)
def test_a_field_that_differs_is_reported(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in "\n".join(told(**changes))


def test_only_the_field_that_differs_is_reported() -> None:
    assert len(told(content="It is hot.")) == 1
    assert len(told(content="", reasoning="I should ask.It is cold.")) == 2


def test_text_only_in_the_stream_is_reported() -> None:
    sentences = differences(replace(WHOLE, content=""), WHOLE)
    assert sentences == ["content: empty in the whole answer, 'It is cold.' in the streamed one"]


def test_long_text_is_cut_in_the_sentence() -> None:
    (sentence,) = told(content="x" * 10_000)
    assert len(sentence) < 300


@pytest.mark.parametrize("arguments", ["{", "not json", '{"a": 1} {"b": 2}'])
def test_arguments_that_are_not_json_are_compared_as_text(arguments: str) -> None:
    broken = replace(WHOLE, tool_calls=(replace(WEATHER, arguments=arguments),))
    assert differences(broken, broken) == []
    assert differences(replace(WHOLE, tool_calls=(WEATHER,)), broken) != []


def test_true_is_not_one_in_arguments() -> None:
    answer = replace(WHOLE, tool_calls=(replace(TIME, arguments='{"on": 1}'),))
    true = replace(WHOLE, tool_calls=(replace(TIME, arguments='{"on": true}'),))
    assert differences(answer, true) != []


@pytest.mark.parametrize(
    ("first_ids", "second_ids", "at"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), 1),
        ((1, 2, 3), (1, 2, 3, 4), 3),
        ((), (1, 2, 3), None),
        ((), (), None),
    ],
)
def test_divergence_is_the_first_token_that_differs(
    first_ids: tuple[int, ...], second_ids: tuple[int, ...], at: int | None
) -> None:
    answers = [
        replace(WHOLE, token_ids=ids, usage=Usage(9, len(ids))) for ids in (first_ids, second_ids)
    ]
    assert divergence(*answers) == at
    assert divergence(*(replace(answer, usage=None) for answer in answers)) == at


@pytest.mark.parametrize("received", [(1, 2), (1, 2, 3, 3), (1, 9)])
def test_lost_or_doubled_tokens_are_not_a_divergence(
    received: tuple[int, ...],
) -> None:
    reply = replace(WHOLE, token_ids=(1, 2, 3), usage=Usage(9, 3))
    assert divergence(reply, replace(reply, token_ids=received)) is None
    assert divergence(replace(reply, token_ids=received), reply) is None


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ('{"step": 3.0}', '{"step": 3}', True),
        ('{"step": 1e400}', '{"step": 1e400}', True),
        ('{"step": 3.5}', '{"step": 3}', False),
        ('{"step": true}', '{"step": 1.0}', False),
        ('{"step": "3.0"}', '{"step": "3"}', False),
    ],
)
def test_a_number_may_be_spelled_in_two_ways(left: str, right: str, *, same: bool) -> None:
    assert (canonical(left) == canonical(right)) is same
