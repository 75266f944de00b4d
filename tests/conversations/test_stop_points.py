"""Stops are taken from the answer without a stop, so that they surely occur."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.exchanges import WEATHER, answer
from pytest_vllm_gates.conversations.stop_strings import NEVER, choose, cut

THOUGHT = "They ask for the capital of France."
SAYS = "The capital of France is Paris, on the Seine."
IDS = (1, 2, 3, 4, 5, 6, 7, 8, 9)


def chosen(kind: str, content: str = SAYS, **fields: Any) -> str | int | None:
    return choose(kind, answer(content, **fields))


def test_never_is_always_the_same_stop() -> None:
    assert chosen("never") == chosen("never", "") == NEVER


def test_occurs_is_a_word_near_the_middle() -> None:
    assert chosen("occurs") == "Paris"
    assert abs(SAYS.index("Paris") - len(SAYS) // 2) < len("Paris")


def test_occurs_is_not_in_the_reasoning() -> None:
    stop = chosen("occurs", reasoning=THOUGHT)
    assert isinstance(stop, str)
    assert stop in SAYS
    assert stop not in THOUGHT


def test_occurs_falls_back_to_two_words() -> None:
    stop = chosen("occurs", "So I saw the sea.", reasoning="the sea, saw, So")
    assert stop == "saw the"


def test_straddles_contains_parts_of_two_words() -> None:
    stop = chosen("straddles")
    assert isinstance(stop, str)
    assert stop in SAYS
    first_half, second_half = stop.split(" ")
    assert first_half not in SAYS.split()
    assert (len(first_half), len(second_half)) == (2, 2)


def test_in_reasoning_is_a_word_of_the_reasoning() -> None:
    assert chosen("in_reasoning", reasoning=THOUGHT) in THOUGHT.split()


@pytest.mark.parametrize(
    ("kind", "content", "fields"),
    [
        ("occurs", "", {}),
        ("occurs", "Yes", {}),
        ("occurs", "the sea", {"reasoning": "the sea"}),
        ("straddles", "Paris", {}),
        ("straddles", "no no", {"reasoning": "no no"}),
        ("in_reasoning", SAYS, {}),
        ("in_reasoning", SAYS, {"reasoning": "Hm."}),
        ("token_ids", SAYS, {}),
        ("token_ids", "", {"token_ids": IDS}),
        ("token_ids", SAYS, {"token_ids": IDS, "tool_calls": (WEATHER,)}),
        ("token_ids", SAYS, {"token_ids": (7, 7, 7, 7, 7, 7)}),
        ("token_ids", SAYS, {"token_ids": (1,)}),
    ],
)
def test_an_answer_that_offers_no_stop_gives_none(
    kind: str, content: str, fields: dict[str, Any]
) -> None:
    assert chosen(kind, content, **fields) is None


def test_a_stop_token_is_late_new_and_not_the_last() -> None:
    assert chosen("token_ids", token_ids=IDS) == 7
    assert chosen("token_ids", token_ids=(1, 2, 3, 4, 5, 6, 1, 8, 9)) == 8
    assert chosen("token_ids", token_ids=(1, 2, 3, 4, 5, 6, 1, 2, 9)) is None


@pytest.mark.parametrize(
    ("text", "stop", "beginning"),
    [
        ("one two one two", "two", "one "),
        ("one two", "one", ""),
        ("one two", "three", "one two"),
        ("東京は雨", "雨", "東京は"),
    ],
)
def test_a_text_is_cut_at_the_first_occurrence(text: str, stop: str, beginning: str) -> None:
    assert cut(text, stop) == beginning
