"""The end of an answer fits its contents and its request."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.client.answer import Answer, Usage
from pytest_vllm_gates.conversations.checks import finish, reasoning

QWEN = family("qwen3.5")
NOTHING = "finish_reason is 'stop', and there is neither content nor a call"


@pytest.mark.parametrize(
    ("reply", "fields", "sentence"),
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
def test_an_answer_that_stopped_is_not_empty(
    reply: Answer | None, fields: dict[str, Any], sentence: str | None
) -> None:
    faults = list(finish.empty_stop(exchange(reply, **fields)))
    assert faults == ([sentence] if sentence else [])


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_known_finish_reasons_are_accepted(reason: str) -> None:
    assert list(finish.unknown_reason(exchange(answer(finish_reason=reason)))) == []


@pytest.mark.parametrize("reason", [None, "eos", "", "error"])
def test_unknown_finish_reason_is_a_fault(reason: str | None) -> None:
    faults = list(finish.unknown_reason(exchange(answer(finish_reason=reason))))
    assert faults == [f"finish_reason is {reason!r}"]


@pytest.mark.parametrize(
    ("reply", "limit", "sentence"),
    [
        (answer(), 20, None),
        (answer(), 21, None),
        (answer(finish_reason="length"), 20, None),
        (answer(finish_reason="length"), 21, "finish_reason is 'length' after 20 tokens of 21"),
        (answer(), 19, "20 tokens were generated, 19 were allowed"),
        (answer(usage=None), 20, "the answer counts no tokens: usage is missing"),
    ],
)
def test_length_and_usage_agree_with_the_limit(
    reply: Answer, limit: int, sentence: str | None
) -> None:
    assert list(finish.limit(reply, limit)) == ([sentence] if sentence else [])


def test_finish_reason_other_than_expected_is_a_fault() -> None:
    assert list(finish.wrong_reason(answer(finish_reason="length"), "length")) == []
    assert list(finish.wrong_reason(answer(), "length")) == [
        "finish_reason is 'stop', expected 'length'"
    ]


@pytest.mark.parametrize(
    ("reply", "fields", "sentences"),
    [
        (answer(), {}, []),
        (answer("", tool_calls=(WEATHER,)), {}, []),
        (answer("", stop_reason="Oslo"), {"stop_at": "Oslo"}, []),
        (answer("", finish_reason="length"), {}, []),
        (answer("", reasoning="Paris."), {"thinking": "on"}, []),
        (
            answer(reasoning="Hm."),
            {},
            ["thinking is off, and reasoning is 'Hm.'"],
        ),
        (answer(""), {}, ["thinking is off, and the answer is empty too"]),
        (
            answer("", reasoning="Paris."),
            {},
            [
                "thinking is off, and reasoning is 'Paris.'",
                "thinking is off, and the answer is empty too",
            ],
        ),
    ],
)
def test_reasoning_with_thinking_off_is_a_fault(
    reply: Answer, fields: dict[str, Any], sentences: list[str]
) -> None:
    faults = reasoning.without_thinking(exchange(reply, **{"thinking": "off", **fields}))
    assert list(faults) == sentences


THOUGHT = answer(reasoning="Hm.")
EMPTY = "thinking is on, and reasoning is empty"


@pytest.mark.parametrize(
    ("name", "reply", "plain", "sentences"),
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
        "thinks", "does not", "white space", "did for a plain question", "never does",
        "was not sent", "a family that does not think",
    ],
)  # fmt: skip
def test_empty_reasoning_with_thinking_on_is_a_fault(
    name: str, reply: Answer, plain: Answer | None, sentences: list[str]
) -> None:
    thinking_exchange = exchange(reply, thinking="on")
    assert list(reasoning.with_thinking(thinking_exchange, family(name), plain)) == sentences


def test_empty_reasoning_with_thinking_off_is_right() -> None:
    assert list(reasoning.with_thinking(exchange(answer(), thinking="off"), QWEN, THOUGHT)) == []


@pytest.mark.parametrize(
    ("fields", "sentences"),
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
def test_usage_equals_the_number_of_token_ids(fields: dict[str, Any], sentences: list[str]) -> None:
    assert list(finish.usage(exchange(answer(**fields)))) == sentences
