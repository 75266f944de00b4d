"""A stream is framed as strict clients expect, judged on the bytes as they arrived."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.conversations.checks.framing import faults, unrequested_usage

if TYPE_CHECKING:
    from collections.abc import Callable

Chunks = list[dict[str, Any]]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "chat-1", "choices": [choice]}


USAGE = {"id": "chat-1", "choices": [], "usage": {"completion_tokens": 2}}
CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning": "Hm."}),
    chunk({"content": "東京 ☔"}),
    chunk(finish="stop"),
    USAGE,
]


def bytes_of(chunks: Chunks, *, done: bool = True, between: str = "\n\n") -> bytes:
    events = [json.dumps(event, ensure_ascii=False) for event in chunks] + ["[DONE]"] * done
    return "".join(f"data: {event}{between}" for event in events).encode()


def faults_of(body: bytes, kind: str = "text/event-stream; charset=utf-8") -> list[str]:
    middle = len(body) // 2
    pieces = ((0.1, body[:middle]), (0.2, body[middle:]))
    return list(faults(Recording(kind, pieces)))


RIGHT = bytes_of(CHUNKS)


@pytest.mark.parametrize(
    "body",
    [
        RIGHT,
        bytes_of(CHUNKS, between="\r\n\r\n"),
        b": ping\n\n" + RIGHT.replace(b"\n\n", b"\n\n: ping\n\n"),
        RIGHT.replace(b"data: ", b"data:"),
        RIGHT.replace(b"data: ", b"event: message\nid: 7\ndata: "),
        bytes_of([{**event, "usage": {"completion_tokens": 2}} for event in CHUNKS]),
        bytes_of([CHUNKS[0], CHUNKS[0], *CHUNKS[1:]]),
        bytes_of([*CHUNKS[:3], chunk({"content": "."}, "stop"), USAGE]),
        bytes_of([*CHUNKS[:4], chunk({}), USAGE]),
    ],
    ids=[
        "as vLLM", "other line ends", "comments", "no space", "other fields",
        "usage in every chunk", "the role twice", "text with the finish reason",
        "an empty chunk after it",
    ],
)  # fmt: skip
def test_a_stream_that_clients_can_read_is_right(body: bytes) -> None:
    assert faults_of(body) == []


def altered(number: int, change: Callable[[dict[str, Any]], object]) -> bytes:
    chunks = copy.deepcopy(CHUNKS)
    change(chunks[number])
    return bytes_of(chunks)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (bytes_of(CHUNKS, done=False), "the stream does not end in '[DONE]': its last event is"),
        (RIGHT + RIGHT[:-20], "an event is no JSON"),
        (
            altered(0, lambda event: event["choices"][0]["delta"].pop("role")),
            "the first chunk's role is None, not 'assistant'",
        ),
        (bytes_of(CHUNKS[1:]), "the first chunk's role is None"),
        (
            bytes_of([*CHUNKS[:4], *CHUNKS[3:]]),
            "2 chunks have a finish_reason (stop, stop)",
        ),
        (bytes_of([*CHUNKS[:3], USAGE]), "0 chunks have a finish_reason (none)"),
        (
            bytes_of([*CHUNKS[:2], CHUNKS[3], CHUNKS[2], USAGE]),
            "text comes after the chunk with the finish_reason",
        ),
        (bytes_of(CHUNKS[:4]), "usage was asked for (stream_options) and never came"),
        (
            altered(2, lambda event: event.update(id="chat-2")),
            "the chunks of one stream have the ids ['chat-1', 'chat-2']",
        ),
        (
            bytes_of([{**event, "id": None} for event in CHUNKS]),
            "the chunks of one stream have the ids ['None']",
        ),
        (
            altered(2, lambda event: event["choices"][0]["delta"].update(content="東\ufffd")),
            "a chunk splits a character: delta.content is '東\ufffd'",
        ),
        (
            altered(1, lambda event: event["choices"][0]["delta"].update(reasoning="\ufffd")),
            "a chunk splits a character: delta.reasoning is",
        ),
        (bytes_of([USAGE]), "no chunk holds a choice"),
        (RIGHT.replace("☔".encode(), b"\xe2\x98"), "the stream is no UTF-8: "),
        (b"data: {not json\n\n" + RIGHT, "an event is no JSON (Expecting property name"),
        (b"data: 7\n\n" + RIGHT, "an event is no JSON object: '7'"),
        (
            altered(0, lambda event: event["choices"][0].update(delta=None)),
            "the first chunk's role is None",
        ),
        (b"\n\n", "the stream does not end in '[DONE]': its last event is ''"),
    ],
)
def test_a_stream_that_strict_clients_refuse_is_a_fault(body: bytes, sentence: str) -> None:
    sentences = faults_of(body)
    assert any(found_sentence.startswith(sentence) for found_sentence in sentences), sentences


def test_one_fault_is_reported_once() -> None:
    assert len(faults_of(bytes_of(CHUNKS, done=False))) == 1
    assert len(faults_of(bytes_of([*CHUNKS[:4], *CHUNKS[3:]]))) == 1


def test_the_content_type_is_text_event_stream() -> None:
    assert faults_of(RIGHT, "application/json") == [
        "the content type is 'application/json', not 'text/event-stream'"
    ]


def test_an_empty_recording_is_not_judged() -> None:
    assert list(faults(Recording())) == []


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
    sentences = list(unrequested_usage(Recording("text/event-stream", ((0.1, bytes_of(chunks)),))))
    assert bool(sentences) == comes
    assert all(
        found_sentence.startswith("stream_options did not ask for usage")
        for found_sentence in sentences
    )


def test_unreadable_events_hold_no_usage() -> None:
    body = b"data: {broken\n\ndata: 7\n\n" + RIGHT
    assert len(list(unrequested_usage(Recording("text/event-stream", ((0.1, body),))))) == 1
