"""Parses raw responses into tokens and their times: HTTP/1.1, server-sent events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from pytest_vllm_gates.load.types import AnsweredRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.load.types import RawResponse

HEAD_END = b"\r\n\r\n"
CHUNKED = b"chunked"
DONE = b"[DONE]"
CHOICE = b'"choices":[{"index":0,'
COMPLETION_TOKENS = b'"completion_tokens":'
TOKEN_IDS = b'"token_ids":['
TEXTS = ("text", "content", "reasoning", "reasoning_content")
OK = 200
SHOWN = 200


class BrokenAnswerError(ValueError):
    """The bytes are not a complete answer; the message has the reason."""


def answered(raw: RawResponse) -> AnsweredRequest:
    """Return the tokens of a streamed answer; `error` has the reason if it is not complete.

    A chunk's tokens are the increase of its usage (`continuous_usage_stats`), else its `token_ids`;
    if the server sends neither, each chunk with text counts as one.
    """
    try:
        return _read(raw)
    except BrokenAnswerError as error:
        return AnsweredRequest(raw.name, raw.intended_s, raw.ended_s, error=raw.error or str(error))


def _read(raw: RawResponse) -> AnsweredRequest:
    status, events = _events(raw)
    if status != OK:
        body = b"".join(data for _, data in events)[:SHOWN].decode(errors="replace")
        raise BrokenAnswerError(f"answered {status}: {body}")
    return _counted(raw, events)


def _counted(raw: RawResponse, events: list[tuple[float, bytes]]) -> AnsweredRequest:
    counts = _Counts()
    done, latest = False, b""
    for at, data in events:  # this runs for every token of a load: it has to be cheap
        if totals := _fast_counts(data):
            latest = data
            counts.add(at, *totals)
        elif data == DONE:
            done = True
        else:
            counts.read(at, _object(data))
    if not done:
        raise BrokenAnswerError("the stream ended without [DONE]")
    if latest and counts.prompt is None:  # there was not a summary at the end
        counts.prompt = _object(latest)["usage"].get("prompt_tokens")
    by = next((name for name, tokens in counts.by.items() if tokens), "")
    return AnsweredRequest(
        raw.name, raw.intended_s, raw.ended_s, counts.prompt, _together(counts.by.get(by, ())), by,
        raw.error, sum(count for _, count in counts.by["token_ids"]) or None,
    )  # fmt: skip


class _Counts:
    """The tokens of an answer and their times by source, the most reliable source first."""

    def __init__(self) -> None:
        self.usage: list[tuple[float, int]] = []
        self.token_ids: list[tuple[float, int]] = []
        self.chunks: list[tuple[float, int]] = []
        self.by = {"usage": self.usage, "token_ids": self.token_ids, "chunks": self.chunks}
        self.prompt: int | None = None
        self._total = 0

    def add(self, at: float, total: int, ids: int) -> None:
        """Count a chunk with the total of tokens so far and so many ids."""
        if total > self._total:
            self.usage.append((at, total - self._total))
            self._total = total
        if ids:
            self.token_ids.append((at, ids))

    def read(self, at: float, event: dict[str, Any]) -> None:
        """Count the tokens of an event; raises `BrokenAnswerError` for an error."""
        if error := event.get("error"):
            raise BrokenAnswerError(f"the stream broke off: {error}"[:SHOWN])
        usage = event.get("usage") or {}
        choices = event.get("choices") or []
        self.prompt = usage.get("prompt_tokens", self.prompt)
        total = usage.get("completion_tokens", 0) if choices else 0
        self.add(at, total, sum([len(choice.get("token_ids") or ()) for choice in choices]))
        if not self._total and any(map(_has_text, choices)):
            self.chunks.append((at, 1))


def _fast_counts(data: bytes) -> tuple[int, int] | None:
    """Return the tokens so far and the token ids in a chunk as vLLM spells it; None for others.

    Only keys are found: in a JSON string each quotation mark has a backslash before it.
    """
    if CHOICE not in data or not data.endswith(b"}}"):
        return None
    total = data[data.rfind(COMPLETION_TOKENS) + len(COMPLETION_TOKENS) : -2]
    if not total.isdigit() or total == b"0":
        return None
    ids_at = data.find(TOKEN_IDS)
    if ids_at < 0:
        return int(total), 0
    ids_at += len(TOKEN_IDS)
    ids_end = data.find(b"]", ids_at)
    if data.find(TOKEN_IDS, ids_end) >= 0:  # of another choice
        return None
    return int(total), data.count(b",", ids_at, ids_end) + (ids_end > ids_at)


def _together(tokens: Iterable[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """Return the tokens, with those of one packet as one, in however many chunks they came."""
    times: dict[float, int] = {}
    for at, count in tokens:
        times[at] = times.get(at, 0) + count
    return tuple(times.items())


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or choice
    return any(map(delta.get, TEXTS)) or any(
        (call.get("function") or {}).get("arguments") for call in delta.get("tool_calls") or ()
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = from_json(data)
    except ValueError:
        value = _lenient(data)
    if not isinstance(value, dict):
        raise BrokenAnswerError(f"an event is not a JSON object: {data[:SHOWN]!r}")
    return value


def _lenient(data: bytes) -> Any:
    """Return the JSON as the standard library parses it, which accepts half a surrogate pair."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _events(raw: RawResponse) -> tuple[int, list[tuple[float, bytes]]]:
    """Return the status and each event's time and data; another body is one event."""
    head, separator, _ = raw.answer.partition(HEAD_END)
    if not separator:
        raise BrokenAnswerError("the connection ended before an answer")
    status_line, *lines = head.split(b"\r\n")
    try:
        status = int(status_line.split(b" ", 2)[1])
    except (IndexError, ValueError):
        raise BrokenAnswerError(f"this is not HTTP: {status_line[:SHOWN]!r}") from None
    headers = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    body_at = len(head) + len(HEAD_END)
    if CHUNKED in headers.get(b"transfer-encoding", b""):
        pieces = _chunks(raw.answer, body_at)
    else:
        pieces = [(raw.answer[body_at:], len(raw.answer))]
        _check_length(headers, len(raw.answer) - body_at)
    if b"text/event-stream" not in headers.get(b"content-type", b""):
        return status, [(raw.ended_s, b"".join(data for data, _ in pieces))]
    return status, _timed(_data(pieces), raw.arrivals)


def _timed(
    events: Iterable[tuple[bytes, int]], arrivals: Iterable[tuple[float, int]]
) -> list[tuple[float, bytes]]:
    """Return each event's data with the time of its last byte."""
    timed = []
    reads = iter(arrivals)
    at, size = next(reads)
    for data, end in events:
        while size < end:
            at, size = next(reads)
        timed.append((at, data))
    return timed


def _check_length(headers: dict[bytes, bytes], size: int) -> None:
    length = headers.get(b"content-length")
    if length and length.isdigit() and int(length) > size:
        raise BrokenAnswerError(f"the connection ended after {size} of {int(length)} bytes")


def _chunks(answer: bytes, at: int) -> list[tuple[bytes, int]]:
    """Return the chunks of a chunked body, and where in the answer each ends (RFC 9112, 7.1)."""
    chunks: list[tuple[bytes, int]] = []
    while True:
        line_end = answer.find(b"\r\n", at)
        line = answer[at:line_end]
        try:
            size = int(line.partition(b";")[0], 16) if line_end >= 0 else None
        except ValueError:
            size = -1
        if size is not None and size < 0:
            raise BrokenAnswerError(f"a chunk begins with {line[:SHOWN]!r}")
        if size is None or line_end + 4 + size > len(answer):
            raise BrokenAnswerError("the connection ended in the middle of the answer")
        if size == 0:
            return chunks
        end = line_end + 2 + size
        chunks.append((answer[line_end + 2 : end], end))
        at = end + 2


def _data(pieces: list[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    """Yield each event's data, and its end in the answer, however the pieces are cut."""
    unfinished = b""
    for piece, end in pieces:
        single_line = piece.endswith(b"\n\n") and piece.find(b"\n") == len(piece) - 2
        if single_line and not unfinished and piece.startswith(b"data:"):  # the usual case
            yield piece[5:].strip(), end
            continue
        buffered = unfinished + piece.replace(b"\r\n", b"\n")
        *events, unfinished = buffered.split(b"\n\n")
        left = len(unfinished) + sum(len(event) + 2 for event in events)
        for event in events:
            left -= len(event) + 2
            data = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if data:
                # If a piece was rewritten (\r\n) or an event began in an earlier one, its end is
                # the end of the last byte it needed from this piece, at most the piece's own.
                yield b"\n".join(data), min(end, max(end - len(piece) + 1, end - left))
