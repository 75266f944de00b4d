"""Choices are not mixed, and log-probabilities belong to the text."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.conversations.checks import choices

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = ("🦀 red", "🎻 script")


def score(token: str, logprob: float = -0.5) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def piece(index: int, content: str, *tokens: str, ids: list[int] | None = None) -> dict[str, Any]:
    scores = {"content": [score(token) for token in tokens]}
    numbers = [len(token) for token in tokens] if ids is None else ids
    choice = {"index": index, "delta": {"content": content}, "token_ids": numbers}
    return {"choices": [choice | {"logprobs": scores, "finish_reason": None}]}


def end(index: int) -> dict[str, Any]:
    scored = {"logprobs": {"content": [score("<|end|>")]}, "token_ids": [9]}
    return {"choices": [{"index": index, "delta": {}, "finish_reason": "stop"} | scored]}


STREAM = [
    piece(0, "", ""), piece(1, "🎻", "🎻"), piece(0, "🦀", "🦀"), piece(0, " red", " red"),
    piece(1, " script", " scr", "ipt"), end(1), end(0), {"choices": [], "usage": {}},
]  # fmt: skip


def streamed(
    *changes: tuple[int, Callable[[dict[str, Any]], object]],
) -> list[choices.ScoredChoice]:
    chunks = copy.deepcopy(STREAM)
    for number, change in changes:
        change(chunks[number]["choices"][0])
    return choices.of_stream(chunks)


def whole() -> list[choices.ScoredChoice]:
    body = [
        {
            "index": choice.index, "message": {"content": choice.content},
            "token_ids": choice.token_ids, "logprobs": {"content": choice.scores},
            "finish_reason": choice.finish_reason,
        }
        for choice in reversed(streamed())
    ]  # fmt: skip
    return choices.of_whole({"choices": body})


def test_a_stream_is_assembled_by_choice() -> None:
    assert [(choice.index, choice.content) for choice in streamed()] == [*enumerate(TEXTS)]
    assert [choice.tokens for choice in streamed()] == ["🦀 red<|end|>", "🎻 script<|end|>"]
    assert streamed() == whole()


def test_right_choices_are_right() -> None:
    first, second = whole(), streamed()
    for choice in (*first, *second):
        assert [*choices.unaligned(choice)] == []
    assert [*choices.mixed(second, TEXTS), *choices.swapped(first, second)] == []
    assert [*choices.miscounted(first, 2)] == []
    assert all(not [*choices.scored_otherwise(a, b)] for a, b in zip(first, second, strict=True))


def test_a_missing_choice_is_a_fault() -> None:
    assert [*choices.miscounted(whole()[:1], 2)] == [
        "2 choices were requested (n), and the answer has the indices [0]"
    ]


def test_a_delta_of_another_choice_is_a_fault() -> None:
    mixed = streamed((3, lambda choice: choice.update(index=1)))
    assert [*choices.mixed(mixed, TEXTS)] == [
        "choice 0 is not one of the texts that the grammar allows: '🦀'",
        "choice 1 is not one of the texts that the grammar allows: '🎻 red script'",
    ]


def test_a_choice_that_was_cut_is_not_judged() -> None:
    cut = streamed((3, lambda choice: choice["delta"].update(content=" r")))
    assert len([*choices.mixed(cut, TEXTS)]) == 1
    cut[0].finish_reason = "length"
    assert [*choices.mixed(cut, TEXTS)] == []


def test_choices_in_another_order_are_a_fault() -> None:
    swapped = streamed(
        *((number, lambda choice: choice.update(index=1 - choice["index"])) for number in range(7))
    )
    assert [*choices.swapped(whole(), swapped)] == [
        "choice 0 of the stream is choice 1 of the whole answer",
        "choice 1 of the stream is choice 0 of the whole answer",
    ]


def test_choices_that_were_generated_differently_are_in_no_order() -> None:
    other = streamed((1, lambda choice: choice.update(token_ids=[77])))
    assert [*choices.swapped(whole(), other)] == []


@pytest.mark.parametrize(
    ("number", "change", "sentence"),
    [
        (
            3,
            lambda choice: choice["logprobs"].update(content=[]),
            "4 tokens came, and 3 have log-probabilities",
        ),
        (
            3,
            lambda choice: choice["logprobs"].update(content=[score(" blue")]),
            "logprobs are of the text '🦀 blue<|end|>', and content is '🦀 red'",
        ),
        (
            2,
            lambda choice: choice["delta"].update(content="🦀 red"),
            "logprobs are of the text '🦀 red<|end|>', and content is '🦀 red red'",
        ),
        (
            3,
            lambda choice: choice["logprobs"]["content"][0].update(bytes=[32, 114]),
            "the bytes of the token ' red' are [32, 114]",
        ),
    ],
)
def test_log_probabilities_of_another_text_are_a_fault(
    number: int, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    assert sentence in [*choices.unaligned(streamed((number, change))[0])]


def test_text_before_its_log_probabilities_is_a_fault() -> None:
    scores = STREAM[3]["choices"][0]["logprobs"]["content"]
    late = streamed(
        (3, lambda choice: choice["logprobs"].update(content=[])),
        (6, lambda choice: choice["logprobs"]["content"].insert(0, scores[0])),
    )
    assert [*choices.unaligned(late[0])] == ["the text came before its log-probabilities: '🦀 red'"]


def test_other_log_probabilities_of_the_same_tokens_are_a_fault() -> None:
    other = streamed((3, lambda choice: choice["logprobs"]["content"][0].update(logprob=-3.0)))
    assert [*choices.scored_otherwise(whole()[0], other[0])] == [
        "log-probability 2 is -0.500 of ' red' in the whole answer, -3.000 of ' red' in the "
        "streamed one"
    ]
    other[0].token_ids[0] = 77
    assert [*choices.scored_otherwise(whole()[0], other[0])] == []


def test_rounding_in_log_probabilities_is_allowed() -> None:
    other = streamed((3, lambda choice: choice["logprobs"]["content"][0].update(logprob=-0.55)))
    assert [*choices.scored_otherwise(whole()[0], other[0])] == []


def scored(*scores: dict[str, Any]) -> choices.ScoredChoice:
    return choices.ScoredChoice(0, scores=list(scores))


def drawn(logprob: float, *alternatives: float) -> dict[str, Any]:
    return {
        "token": "a", "logprob": logprob, "top_logprobs": [{"logprob": one} for one in alternatives]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("score", "greedy", "sentence"),
    [
        (drawn(-0.1, -0.1, -2.0), True, None),
        (drawn(-0.75, -0.7, -0.75), True, None),  # as likely, in another batch
        (drawn(-5.0, -5.0, -0.1), False, None),  # vLLM lists what was drawn first
        (drawn(-0.1), False, None),
        (drawn(0.4, -0.1, -2.0), False, "log-probability 0, of 'a', is 0.400, above 0"),
        (drawn(-0.1, -0.1, 2.0), True, "log-probability 0, of 'a', is 2.000, above 0"),
        (drawn(-0.1, -0.1), True, "token 0 has 1 alternatives of 2 requested"),
        (
            drawn(-0.1, -2.0, -0.1),
            True,
            "token 0, 'a', has the log-probability -0.100, "
            "and its alternatives have -2.000, -0.100",
        ),
        (
            drawn(-3.0, -0.1, -3.0),
            True,
            "token 0, 'a', has the log-probability -3.000, "
            "and its alternatives have -0.100, -3.000",
        ),
    ],
)
def test_impossible_log_probabilities(
    score: dict[str, Any], greedy: bool, sentence: str | None
) -> None:
    found = [*choices.implausible(scored(score), greedy=greedy, alternatives=2)]
    assert found == ([sentence] if sentence else [])
