"""The way an answer ends fits what it holds and what was asked."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.client.answer import Answer, Usage
from pytest_vllm_gates.conversations.checks import finish

QWEN = family("qwen3.5")
NOTHING = "finish_reason is 'stop', and there is neither content nor a call"


@pytest.mark.parametrize(
    ("whole", "fields", "sentence"),
    [
        (answer(), {}, None),
        (answer("", tool_calls=(WEATHER,), finish_reason="stop"), {}, None),
        (answer("", finish_reason="length"), {}, None),
        (answer("", finish_reason="tool_calls"), {}, None),
        (answer("", stop_reason="Oslo"), {"stop_at": "Oslo"}, None),
        (None, {}, None),
        (answer(""), {}, NOTHING),
        (answer(" \n"), {}, NOTHING),
        (answer("", reasoning="Paris."), {}, f"{NOTHING} (everything is in reasoning)"),
        (answer("", stop_reason="</s>"), {}, NOTHING),
    ],
)
def test_an_ended_answer_holds_something(
    whole: Answer | None, fields: dict[str, Any], sentence: str | None
) -> None:
    found = list(finish.empty_stop(exchange(whole, **fields)))
    assert found == ([sentence] if sentence else [])


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_the_known_words_say_how_an_answer_ended(reason: str) -> None:
    assert list(finish.unknown_reason(exchange(answer(finish_reason=reason)))) == []


@pytest.mark.parametrize("reason", [None, "eos", "", "error"])
def test_any_other_word_is_told(reason: str | None) -> None:
    found = list(finish.unknown_reason(exchange(answer(finish_reason=reason))))
    assert found == [f"finish_reason is {reason!r}"]


@pytest.mark.parametrize(
    ("whole", "limit", "sentence"),
    [
        (answer(), 20, None),
        (answer(), 21, None),
        (answer(finish_reason="length"), 20, None),
        (answer(finish_reason="length"), 21, "finish_reason is 'length' after 20 tokens of 21"),
        (answer(), 19, "20 tokens were generated, 19 were allowed"),
        (answer(usage=None), 20, "the answer counts no tokens: usage is missing"),
    ],
)
def test_a_limit_is_kept(whole: Answer, limit: int, sentence: str | None) -> None:
    assert list(finish.limit(whole, limit)) == ([sentence] if sentence else [])


def test_the_limit_is_told() -> None:
    assert list(finish.wrong_reason(answer(finish_reason="length"), "length")) == []
    assert list(finish.wrong_reason(answer(), "length")) == [
        "finish_reason is 'stop', due is 'length'"
    ]


@pytest.mark.parametrize(
    ("whole", "fields", "sentences"),
    [
        (answer(), {}, []),
        (answer("", tool_calls=(WEATHER,)), {}, []),
        (answer("", stop_reason="Oslo"), {"stop_at": "Oslo"}, []),
        (answer("", finish_reason="length"), {}, []),
        (answer("", reasoning="Paris."), {"thinking": "on"}, []),
        (
            answer(reasoning="Hm."),
            {},
            ["the model was not to think, and reasoning is 'Hm.'"],
        ),
        (answer(""), {}, ["the model was not to think, and there is no answer either"]),
        (
            answer("", reasoning="Paris."),
            {},
            [
                "the model was not to think, and reasoning is 'Paris.'",
                "the model was not to think, and there is no answer either",
            ],
        ),
    ],
)
def test_thinking_off_answers_at_once(
    whole: Answer, fields: dict[str, Any], sentences: list[str]
) -> None:
    found = finish.without_thinking(exchange(whole, **{"thinking": "off", **fields}))
    assert list(found) == sentences


THOUGHT = answer(reasoning="Hm.")
EMPTY = "the model was to think, and reasoning is empty"


@pytest.mark.parametrize(
    ("name", "whole", "plain", "found"),
    [
        ("qwen3.5", THOUGHT, THOUGHT, []),
        ("qwen3.5", answer(), None, [EMPTY]),
        ("qwen3.5", answer(reasoning=" \n"), THOUGHT, [EMPTY]),
        ("gemma", answer(), THOUGHT, [EMPTY]),
        ("gemma", answer(), answer(), []),
        ("gemma", answer(), None, []),
        ("gemma/3", answer(), None, []),
    ],
    ids=[
        "thinks", "does not", "white space", "did when asked plainly", "never does",
        "was not asked", "a family that does not think",
    ],
)  # fmt: skip
def test_thinking_on_thinks(
    name: str, whole: Answer, plain: Answer | None, found: list[str]
) -> None:
    entry = exchange(whole, thinking="on")
    assert list(finish.with_thinking(entry, family(name), plain)) == found


def test_thinking_is_not_missed_where_it_was_not_asked_for() -> None:
    assert list(finish.with_thinking(exchange(answer(), thinking="off"), QWEN, THOUGHT)) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"token_ids": (1, 2, 3), "usage": Usage(10, 3)}, []),
        ({"token_ids": ()}, []),
        ({"token_ids": (1, 2), "usage": None}, []),
        (
            {"token_ids": (1, 2), "usage": Usage(10, 3)},
            ["usage counts 3 tokens, and 2 token ids came"],
        ),
    ],
)
def test_usage_counts_the_tokens_that_came(fields: dict[str, Any], found: list[str]) -> None:
    assert list(finish.usage(exchange(answer(**fields)))) == found
