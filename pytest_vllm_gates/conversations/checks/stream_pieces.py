"""Converts a recorded stream to evidence: each text with its arrival time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.answer import Exchange, Recording
    from pytest_vllm_gates.outcomes import Finding

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
    """Return [seconds, text] of each piece with text, the first 600 of them.

    An event counts for the piece that ends it. An event that is not a chat's has no text.
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
            continue  # another check judges its form
