"""A dialect whose long texts all come in one event is reported; a single one is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from dialects.made import events, reply
from pytest_vllm_gates.client.answer import Answer
from pytest_vllm_gates.dialects import pieces
from pytest_vllm_gates.dialects.types import Dialogues, HeldDialogue

LONG = "a text that is as long as it has to be, and longer"
ANSWER = Answer("", LONG, (), "stop", None)
KINDS = ("messages", "responses", "completions")


def delta(dialect: str, place: int, text: str) -> dict[str, Any]:
    if dialect == "messages":
        added = {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": place, "delta": added}
    if dialect == "responses":
        kind = "response.output_text.delta"
        return {"type": kind, "item_id": f"msg_{place}", "content_index": 0, "delta": text}
    return {"type": "", "choices": [{"index": place, "text": text}]}


def says(dialect: str, *streams: list[str]) -> list[str]:
    replies = tuple(
        reply(
            dialect, "stream", {},
            events=events([delta(dialect, place, text) for text in texts]),
        )
        for place, texts in enumerate(streams)
    )  # fmt: skip
    held = HeldDialogue("plain", {"max_tokens": 9}, ANSWER, (), near_tie=False, replies=replies)
    return [each.says for each in pieces.findings(Dialogues((held,), {}, 1, 0.1, ("m",)))]


@pytest.mark.parametrize("dialect", KINDS)
def test_texts_that_all_come_in_one_event_are_reported(dialect: str) -> None:
    (sentence,) = says(dialect, [LONG], [LONG], [LONG])
    assert sentence.startswith("each of 3 texts of 24 characters or more came in one event")


@pytest.mark.parametrize("dialect", KINDS)
def test_one_text_in_pieces_is_enough(dialect: str) -> None:
    assert says(dialect, [LONG], [LONG[:9], LONG[9:]], [LONG]) == []


@pytest.mark.parametrize("dialect", KINDS)
def test_few_or_short_texts_have_no_finding(dialect: str) -> None:
    assert says(dialect, [LONG], [LONG]) == []
    assert says(dialect, ["short"], ["short"], ["short"]) == []


@pytest.mark.parametrize(("answers", "told"), [(3, 0), (4, 1)])
def test_answers_alone_that_come_in_one_event_are_reported(answers: int, told: int) -> None:
    def data(number: int, kind: str, texts: list[str]) -> list[dict[str, Any]]:
        event = {"item_id": f"{kind}{number}", "content_index": 0}
        return [{"type": f"response.{kind}.delta", **event, "delta": text} for text in texts]

    replies = tuple(
        reply(
            "responses", "stream", {},
            events=events([
                *data(number, "reasoning_text", [LONG[:9], LONG[9:]]),
                *data(number, "output_text", [LONG]),
            ]),
        )
        for number in range(answers)
    )  # fmt: skip
    held = HeldDialogue("plain", {"max_tokens": 9}, ANSWER, (), near_tie=False, replies=replies)
    found = list(pieces.findings(Dialogues((held,), {}, 1, 0.1, ("m",))))
    assert len(found) == told
    assert all(f"each of {answers} answer texts" in each.says for each in found)
