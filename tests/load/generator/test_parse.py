"""Tokens and their times are parsed from raw responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.types import RawResponse

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
CHUNKED = STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(content: str = "", usage: int | None = None, **choice: Any) -> bytes:
    chunk: dict[str, Any] = {"choices": [{"delta": {"content": content}, **choice}]}
    if usage is not None:
        chunk["usage"] = {"prompt_tokens": 5, "completion_tokens": usage}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def raw(*pieces: bytes, every_s: float = 1.0, error: str = "") -> RawResponse:
    """Return an answer whose pieces came a second apart, from the first second on."""
    size, arrivals = 0, []
    for number, piece in enumerate(pieces, start=1):
        size += len(piece)
        arrivals.append((number * every_s, size))
    ended = arrivals[-1][0] if arrivals else 0.0
    return RawResponse("r", 0.25, 0.5, ended, b"".join(pieces), tuple(arrivals), 0.0, error)


def stream(*events: bytes) -> list[bytes]:
    """Return a stream's pieces: head, then an event a piece, then the end."""
    return [CHUNKED, *(framed(data) for data in events), b"0\r\n\r\n"]


def test_usage_counts_tokens_and_role_chunk_has_none() -> None:
    pieces = stream(event("", 0), event("a", 1), event("b c", 3), event("", 3), DONE)
    request = answered(raw(*pieces))
    assert request.error == ""
    assert request.tokens == ((3.0, 1), (4.0, 2))
    assert (request.counted_by, request.prompt_tokens, request.output_tokens) == ("usage", 5, 3)
    assert (request.name, request.intended_s, request.ended_s) == ("r", 0.25, 7.0)


def test_final_usage_summary_is_not_a_token() -> None:
    last = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}\n\n'
    request = answered(raw(*stream(event("a", token_ids=[1, 2]), last, DONE)))
    assert (request.tokens, request.counted_by) == (((2.0, 2),), "token_ids")
    assert request.prompt_tokens == 5


def test_chunk_with_text_counts_once_without_other_counts() -> None:
    pieces = stream(event(""), event("a"), event("b c"), DONE)
    request = answered(raw(*pieces))
    assert (request.tokens, request.counted_by) == (((3.0, 1), (4.0, 1)), "chunks")


@pytest.mark.parametrize(
    "choice",
    [
        {"text": "a"},
        {"delta": {"reasoning": "a"}},
        {"delta": {"reasoning_content": "a"}},
        {"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}},
    ],
)
def test_every_output_field_counts_as_tokens(choice: dict[str, Any]) -> None:
    data = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    assert answered(raw(*stream(data, DONE))).output_tokens == 1


def test_event_time_is_that_of_its_last_byte() -> None:
    body = framed(event("a", 1)) + framed(event("b", 2)) + framed(DONE) + b"0\r\n\r\n"
    middle = len(framed(event("a", 1))) + 9
    request = answered(raw(CHUNKED + body[:middle], body[middle:]))
    assert request.tokens == ((1.0, 1), (2.0, 1))


def test_events_may_share_or_span_chunks() -> None:
    events = event("a", 1) + event("b", 2)
    request = answered(raw(CHUNKED, framed(events[:-4]), framed(events[-4:] + DONE), b"0\r\n\r\n"))
    assert request.tokens == ((2.0, 1), (3.0, 1))


def test_windows_line_ends_are_accepted() -> None:
    events = (event("a", 1) + event("b", 2) + DONE).replace(b"\n", b"\r\n")
    assert answered(raw(CHUNKED, framed(events), b"0\r\n\r\n")).output_tokens == 2


def test_a_stream_without_chunks_ends_with_the_connection() -> None:
    request = answered(raw(STREAM + b"\r\n", event("a", 1), DONE))
    assert (request.tokens, request.error) == (((2.0, 1),), "")


ERROR = b'{"error": {"message": "no"}}'
HTML = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "the connection ended before an answer"),
        ([b"HTTP/1.1 200 OK\r\n"], "the connection ended before an answer"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "this is not HTTP: b'SSH-2.0-OpenSSH'"),
        ([HTML + b"oops"], "answered 502: oops"),
        ([HTML + b"oo"], "the connection ended after 2 of 4 bytes"),
        ([CHUNKED, framed(event("a", 1))], "the connection ended in the middle of the answer"),
        ([CHUNKED, framed(event("a", 1))[:-8]], "the connection ended in the middle of the answer"),
        ([CHUNKED, b"zz\r\n"], "a chunk begins with b'zz'"),
        ([CHUNKED, framed(event("a", 1)), b"-6\r\n"], "a chunk begins with b'-6'"),
        (stream(event("a", 1)), "the stream ended without [DONE]"),
        (stream(b"data: {\n\n", DONE), "an event is not a JSON object: b'{'"),
        (stream(b"data: []\n\n", DONE), "an event is not a JSON object: b'[]'"),
        (stream(b"data: " + ERROR + b"\n\n", DONE), "the stream broke off: {'message': 'no'}"),
    ],
)  # fmt: skip
def test_incomplete_answer_is_reported(pieces: list[bytes], message: str) -> None:
    request = answered(raw(*pieces))
    assert request.error == message
    assert request.tokens == ()


def test_error_of_the_loop_comes_first() -> None:
    request = answered(raw(CHUNKED, framed(event("a", 1)), error="nothing came for 5 s"))
    assert request.error == "nothing came for 5 s"


LIKE_KEYS = ['"completion_tokens":7}}', '"token_ids":[1,2,3]', '"choices":[{"index":0,', "]", "\\"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(LIKE_KEYS)


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    st.sampled_from(["text", "reasoning"]),
    st.booleans(),
    st.booleans(),
)
def test_compact_and_spaced_json_count_alike(
    steps: list[tuple[str, int, bool]], field: str, with_ids: bool, last_tells: bool
) -> None:
    """vLLM's JSON has no spaces and its keys in one order; others are read by the JSON's rules."""
    total = 0
    compact: list[bytes] = []
    spaced: list[bytes] = []
    for content, more, in_delta in steps:
        total += more
        ids = {"token_ids": [*range(more)]} if with_ids else {}
        words = {"delta": {field: content}} if in_delta else {field: content}
        chunk = {"id": content, "choices": [{"index": 0, **words, **ids}]}
        usage = {"prompt_tokens": 5, "completion_tokens": total}
        for spelled, separators in ((compact, (",", ":")), (spaced, (", ", " : "))):
            line = json.dumps({**chunk, "usage": usage}, separators=separators, ensure_ascii=False)
            spelled.append(b"data: " + line.encode() + b"\n\n")
    end = [DONE]
    if last_tells:
        end = [b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":99}}\n\n', DONE]
    request = answered(raw(*stream(*compact, *end)))
    assert request == answered(raw(*stream(*spaced, *end)))
    assert request.prompt_tokens == 5
    assert request.output_tokens == total or not total


def test_the_ids_of_several_choices_are_counted_together() -> None:
    choices = [{"index": number, "text": "a", "token_ids": [1, 2]} for number in range(2)]
    chunk = {"choices": choices, "usage": {"completion_tokens": 4}}
    line = json.dumps(chunk, separators=(",", ":")).encode()
    request = answered(raw(*stream(b"data: " + line + b"\n\n", DONE)))
    assert (request.counted_by, request.output_tokens, request.token_ids) == ("usage", 4, 4)


def test_too_deeply_nested_event_is_reported() -> None:
    data = b"data: " + b"[" * 100_000 + b"\n\n"
    assert "an event is not a JSON object" in answered(raw(*stream(data, DONE))).error
