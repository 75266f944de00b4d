"""Checks server-sent events on the received bytes, and reads the chunks in them.

Events as in https://html.spec.whatwg.org/multipage/server-sent-events.html, each with one JSON
object, and `[DONE]` last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import syntax

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.client.answer import Recording

CONTENT_TYPE = "text/event-stream"
DONE = "[DONE]"
SHOWN = 100


def faults(stream: Recording) -> Iterator[str]:
    """Yield a sentence for each fault in the bytes of a stream; none for a missing stream."""
    if not stream.pieces:
        return
    if not stream.kind.startswith(CONTENT_TYPE):
        yield f"the content type is {stream.kind!r}, not {CONTENT_TYPE!r}"
    try:
        text = stream.body.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"the stream is not UTF-8: {error}"
        return
    events = list(_events(text))
    if not events or events[-1] != DONE:
        last = events[-1][-SHOWN:] if events else ""
        yield f"the stream does not end in {DONE!r}: its last event is {last!r}"
    for data in events:
        if data == DONE:
            continue
        try:
            chunk = syntax.json_value(data, finite=True)
        except syntax.BadSyntaxError as error:
            yield f"an event is not JSON ({error}): {data[:SHOWN]!r}"
            continue
        if not isinstance(chunk, dict):
            yield f"an event is not a JSON object: {data[:SHOWN]!r}"


def chunks(stream: Recording) -> list[dict[str, Any]]:
    """Return the JSON objects of a stream's events; other events are left out."""
    objects = []
    for data in _events(stream.body.decode("utf-8", "replace")):
        try:
            chunk = syntax.json_value(data)
        except syntax.BadSyntaxError:
            continue
        if isinstance(chunk, dict):
            objects.append(chunk)
    return objects


def _events(text: str) -> Iterator[str]:
    """Yield the data of every event; comments have none."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("data:")]
        if lines:
            yield "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)
