"""Server-sent events are judged on the received bytes."""

from __future__ import annotations

import pytest

from conversations.checks.streams import CHUNKS, bytes_of, recording
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.conversations.checks.events import chunks, faults

RIGHT = bytes_of(CHUNKS)


def faults_of(body: bytes) -> list[str]:
    return list(faults(recording(body)))


@pytest.mark.parametrize(
    "body",
    [
        RIGHT,
        bytes_of(CHUNKS, between="\r\n\r\n"),
        b": ping\n\n" + RIGHT.replace(b"\n\n", b"\n\n: ping\n\n"),
        RIGHT.replace(b"data: ", b"data:"),
        RIGHT.replace(b"data: ", b"event: message\nid: 7\nretry: 5\ndata: "),
    ],
    ids=["as vLLM", "other line ends", "comments", "no space", "other fields"],
)
def test_a_stream_that_clients_can_read_is_right(body: bytes) -> None:
    assert faults_of(body) == []
    assert chunks(recording(body)) == CHUNKS


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            bytes_of(CHUNKS, done=False),
            "the stream does not end in '[DONE]': its last event is",
        ),
        (RIGHT + RIGHT[:-20], "an event is not JSON"),
        (RIGHT.replace("☔".encode(), b"\xe2\x98"), "the stream is not UTF-8: "),
        (b"data: {not json\n\n" + RIGHT, "an event is not JSON (Expecting property name"),
        (b"data: 7\n\n" + RIGHT, "an event is not a JSON object: '7'"),
        (b"\n\n", "the stream does not end in '[DONE]': its last event is ''"),
    ],
)
def test_a_stream_that_strict_clients_refuse_is_a_fault(body: bytes, sentence: str) -> None:
    sentences = faults_of(body)
    assert any(found.startswith(sentence) for found in sentences), sentences


def test_one_fault_is_reported_once() -> None:
    assert len(faults_of(bytes_of(CHUNKS, done=False))) == 1


def test_the_content_type_is_text_event_stream() -> None:
    assert list(faults(recording(RIGHT, "application/json"))) == [
        "the content type is 'application/json', not 'text/event-stream'"
    ]


def test_an_empty_recording_is_not_judged() -> None:
    assert list(faults(Recording())) == []


def test_events_that_are_not_chunks_are_left_out() -> None:
    assert chunks(recording(b"data: {broken\n\ndata: 7\n\n" + RIGHT)) == CHUNKS
