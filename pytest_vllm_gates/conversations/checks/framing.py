"""Checks the framing of a stream on the bytes as they arrived, and lays streams out as evidence.

Server-sent events as in https://html.spec.whatwg.org/multipage/server-sent-events.html, with
OpenAI's conventions on top: JSON chunks, the role first, `[DONE]` last.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.answer import Exchange, Recording
    from pytest_vllm_gates.outcomes import Finding

CONTENT_TYPE = "text/event-stream"
DONE = "[DONE]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SHOWN = 100


def faults(stream: Recording) -> Iterator[str]:
    """Yield what is wrong with a stream that asked for usage."""
    if not stream.pieces:
        return
    if not stream.kind.startswith(CONTENT_TYPE):
        yield f"the content type is {stream.kind!r}, not {CONTENT_TYPE!r}"
    try:
        text = stream.body.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"the stream is no UTF-8: {error}"
        return
    events = list(_events(text))
    if not events or events[-1] != DONE:
        yield f"the stream does not end in {DONE!r}: its last event is {_last_event(events)!r}"
    chunks: list[dict[str, Any]] = []
    for data in events:
        if data == DONE:
            continue
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError) as error:
            yield f"an event is no JSON ({error}): {data[:SHOWN]!r}"
            continue
        if isinstance(chunk, dict):
            chunks.append(chunk)
        else:
            yield f"an event is no JSON object: {data[:SHOWN]!r}"
    yield from _conventions(chunks)


def unrequested_usage(stream: Recording) -> Iterator[str]:
    """Yield a sentence for usage in a stream that did not ask for it."""
    for data in _events(stream.body.decode("utf-8", "replace")):
        if data != DONE and _usage(data):
            yield f"stream_options did not ask for usage, and it came: {data[:SHOWN]}"


def _conventions(chunks: list[dict[str, Any]]) -> Iterator[str]:
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or ()]
    if not choices:
        yield "no chunk holds a choice"
        return
    role = _delta(choices[0]).get("role")
    if role != "assistant":
        yield f"the first chunk's role is {role!r}, not 'assistant'"
    finished = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if len(finished) != 1:
        yield f"{len(finished)} chunks have a finish_reason ({', '.join(finished) or 'none'})"
    elif not choices[-1].get("finish_reason") and _carries(_delta(choices[-1])):
        yield "text comes after the chunk with the finish_reason"
    if not any(chunk.get("usage") for chunk in chunks):
        yield "usage was asked for (stream_options) and never came"
    ids = {chunk.get("id") for chunk in chunks}
    if len(ids) != 1 or None in ids:
        yield f"the chunks of one stream have the ids {sorted(map(str, ids))[:3]}"
    for choice in choices:
        for name in ("content", "reasoning", "reasoning_content"):
            text = _delta(choice).get(name)
            if isinstance(text, str) and REPLACEMENT in text:
                yield f"a chunk splits a character: delta.{name} is {text!r}"


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    return choice.get("delta") or {}


def _usage(data: str) -> object:
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):  # another check's finding
        return None
    return chunk.get("usage") if isinstance(chunk, dict) else None


def _carries(delta: dict[str, Any]) -> bool:
    return any(value for name, value in delta.items() if name != "role")


def _events(text: str) -> Iterator[str]:
    """Yield the data of every event; comments have none."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("data:")]
        if lines:
            yield "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)


def _last_event(events: list[str]) -> str:
    return events[-1][-SHOWN:] if events else ""


MOST_PIECES = 600
TEXT_CHARACTERS = 80
FIELDS = ("reasoning_content", "reasoning", "content")


def first_faulty_stream(
    findings: Iterable[Finding], exchanges: Iterable[Exchange]
) -> list[dict[str, Any]]:
    """Return the stream of the first case with a finding, as evidence."""
    names = [finding.case.name for finding in findings][:1]
    return [
        {"what": exchange.cell.name, "pieces": pieces(exchange.stream)}
        for exchange in exchanges
        if exchange.cell.name in names and exchange.stream.pieces
    ]


def pieces(stream: Recording) -> list[list[Any]]:
    """Return [seconds, text] of each piece that carried text, the first 600 of them.

    An event counts for the piece that ends it. An event that is not a chat's carries no text.
    """
    timeline: list[list[Any]] = []
    buffered = b""
    for at, data in stream.pieces:
        *events, buffered = (buffered + data).replace(b"\r\n", b"\n").split(b"\n\n")
        if text := "".join(piece for event in events for piece in _delta_texts(event)):
            timeline.append([round(at, 4), text[:TEXT_CHARACTERS]])
        if len(timeline) == MOST_PIECES:
            break
    return timeline


def _delta_texts(event: bytes) -> Iterator[str]:
    for line in event.decode("utf-8", errors="replace").splitlines():
        name, _, data = line.partition(":")
        if name != "data":
            continue
        try:
            chunk = json.loads(data)
            deltas = [choice["delta"] for choice in chunk["choices"]]
            for delta in deltas:
                yield from (str(delta[field]) for field in FIELDS if delta.get(field))
                for call in delta.get("tool_calls") or ():
                    yield str(call.get("function", {}).get("arguments") or "")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            continue  # whether it is as it should be is judged elsewhere
