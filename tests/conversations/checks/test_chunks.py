"""The chunks of a stream follow the conventions of clients."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.checks.streams import (
    CALLS,
    CHUNKS,
    COUNTED,
    USAGE,
    Chunks,
    altered,
    call_chunk,
    chunk,
)
from pytest_vllm_gates.conversations.checks.chunks import faults, unrequested_usage

TWO = [
    *(chunk({"role": "assistant"}, index=index) for index in (0, 1)),
    *(chunk({"content": "a"}, index=index) for index in (1, 0, 1)),
    *(chunk({}, "stop", index=index) for index in (1, 0)),
    USAGE,
]


def delta(event: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = event["choices"][0]["delta"]
    return part


def call(event: dict[str, Any]) -> dict[str, Any]:
    piece: dict[str, Any] = delta(event)["tool_calls"][0]
    return piece


@pytest.mark.parametrize(
    "chunks",
    [
        CHUNKS,
        CALLS,
        [{**event, "usage": COUNTED} for event in CHUNKS],
        [*CHUNKS[:3], chunk({"content": "."}, "stop"), USAGE],
        [*CHUNKS[:4], chunk({}), USAGE],
        [CHUNKS[0], chunk({}), *CHUNKS[1:]],
        altered(2, lambda event: delta(event).update(role=None)),
        altered(2, lambda event: call(event).update(id=None, type="function"), CALLS),
    ],
    ids=[
        "a text", "calls", "usage in every chunk", "text with the finish reason",
        "an empty chunk after it", "an empty chunk", "a role of null", "an id of null",
    ],
)  # fmt: skip
def test_chunks_that_clients_can_read_are_right(chunks: Chunks) -> None:
    assert [*faults(chunks)] == []


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        (altered(0, lambda event: delta(event).pop("role")), "the first chunk's role is None"),
        (CHUNKS[1:], "the first chunk's role is None"),
        (
            altered(2, lambda event: delta(event).update(role="assistant")),
            "the role comes 2 times, and clients append it",
        ),
        ([*CHUNKS[:4], *CHUNKS[3:]], "2 chunks have a finish_reason (stop, stop)"),
        ([*CHUNKS[:3], USAGE], "0 chunks have a finish_reason (none)"),
        (
            [*CHUNKS[:2], CHUNKS[3], CHUNKS[2], USAGE],
            "text comes after the chunk with the finish_reason",
        ),
        (CHUNKS[:4], "usage was requested (stream_options) and is missing"),
        ([*CHUNKS, USAGE], "2 chunks without choices have usage, expected one"),
        (
            altered(3, lambda event: event.update(usage=COUNTED))[:4],
            "usage is in a chunk with choices, not in a separate chunk",
        ),
        ([*CHUNKS[:2], USAGE, *CHUNKS[2:4]], "choices come after the usage"),
        (
            altered(2, lambda event: event.update(id="chat-2")),
            "the chunks of one stream have the ids ['chat-1', 'chat-2']",
        ),
        (
            [{**event, "id": None} for event in CHUNKS],
            "the chunks of one stream have the ids ['None']",
        ),
        (
            altered(2, lambda event: event.update(model="gpt")),
            "model changes within the stream: ['qwen3.5', 'gpt']",
        ),
        (
            altered(2, lambda event: event.update(created=8)),
            "created changes within the stream: [7, 8]",
        ),
        (
            altered(4, lambda event: event.update(object="chat.completion")),
            "object changes within the stream: ['chat.completion.chunk', 'chat.completion']",
        ),
        (
            altered(2, lambda event: delta(event).update(content="東\ufffd")),
            "a chunk splits a character: delta.content is '東\ufffd'",
        ),
        (
            altered(1, lambda event: delta(event).update(reasoning="\ufffd")),
            "a chunk splits a character: delta.reasoning is",
        ),
        (
            altered(2, lambda event: delta(event).update(content="\ud83e")),
            r"a chunk splits a character: delta.content is '\ud83e'",
        ),
        ([USAGE], "no chunk has a choice"),
        (
            altered(0, lambda event: event["choices"][0].update(delta=None)),
            "the first chunk's role is None",
        ),
        (
            altered(1, lambda event: event["choices"][0].update(index=1)),
            "1 choices were requested, and the chunks have the indices [0, 1]",
        ),
    ],
)
def test_chunks_that_strict_clients_refuse_are_a_fault(chunks: Chunks, sentence: str) -> None:
    sentences = [*faults(chunks)]
    assert any(found.startswith(sentence) for found in sentences), sentences


@pytest.mark.parametrize(
    ("number", "change", "sentence"),
    [
        (1, {"id": None}, "the first delta of tool_calls[0] has no id"),
        (1, {"type": None}, "the first delta of tool_calls[0] has no type"),
        (1, {"function": {"arguments": ""}}, "the first delta of tool_calls[0] has no name"),
        (1, {"type": "tool"}, "tool_calls[0].type is 'tool', not 'function'"),
        (2, {"id": "call-1"}, "tool_calls[0].id comes again as 'call-1', and clients append it"),
        (
            3,
            {"function": {"name": "get_weather", "arguments": ""}},
            "tool_calls[0].name comes again as 'get_weather', and clients append it",
        ),
        (4, {"index": 2}, "a call has the index 2, expected 1"),
        (4, {"index": None}, "a call has the index None, expected 1"),
    ],
)
def test_pieces_of_calls_that_cannot_be_merged_are_a_fault(
    number: int, change: dict[str, Any], sentence: str
) -> None:
    assert [*faults(altered(number, lambda event: call(event).update(change), CALLS))] == [sentence]


def test_a_second_call_before_the_first_is_a_fault() -> None:
    later = call_chunk(1, "{}", id="call-2", type="function", name="get_time")
    assert "a call has the index 1, expected 0" in [
        *faults([CALLS[0], later, *CALLS[1:4], *CALLS[5:]])
    ]


def test_each_choice_is_judged_separately() -> None:
    assert [*faults(TWO, 2)] == []
    assert [*faults(TWO, 3)] == ["3 choices were requested, and the chunks have the indices [0, 1]"]
    once = altered(5, lambda event: event["choices"][0].update(finish_reason=None), TWO)
    assert [*faults(once, 2)] == ["choice 1: 0 chunks have a finish_reason (none)"]


@pytest.mark.parametrize(
    ("indices", "shown"),
    [
        ([0, "0"], "[0, '0']"),
        ([None, 0], "[0, None]"),
        ([0, [1], "a", None, 1.0], "[0, '…"),
        ([0, True], "[0, True]"),
    ],
)
def test_indices_of_several_types_are_a_fault(indices: list[Any], shown: str) -> None:
    pieces = [chunk({"role": "assistant"}, "stop", index=index) for index in indices]
    sentences = [*faults([*pieces, USAGE])]
    expected = "1 choices were requested, and the chunks have the indices "
    (found,) = [sentence for sentence in sentences if sentence.startswith(expected)]
    start, _, _ = shown.partition("…")
    assert found.removeprefix(expected).startswith(start.removesuffix("'"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda event: event.update(choices=7), "a chunk's choices are 7"),
        (lambda event: event.update(choices=[None]), "a chunk's choices are [None]"),
        (lambda event: event["choices"][0].update(delta="a"), "a chunk's delta is 'a'"),
        (
            lambda event: delta(event).update(tool_calls=[7]),
            "a chunk's tool_calls are [7]",
        ),
    ],
)
def test_chunks_of_another_form_are_a_fault(change: Any, sentence: str) -> None:
    assert sentence in [*faults(altered(2, change))]


@pytest.mark.parametrize(
    ("chunks", "comes"),
    [
        (CHUNKS[:4], False),
        ([{**event, "usage": None} for event in CHUNKS[:4]], False),
        (CHUNKS, True),
        ([{**CHUNKS[0], "usage": {"completion_tokens": 0}}, *CHUNKS[1:4]], True),
    ],
)
def test_unrequested_usage_is_a_fault(chunks: Chunks, comes: bool) -> None:
    sentences = list(unrequested_usage(chunks))
    assert bool(sentences) == comes
    assert all(found.startswith("stream_options did not request usage") for found in sentences)
