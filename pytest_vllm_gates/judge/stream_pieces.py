"""A recorded stream as what a person saw appear: evidence to look at, and no judgement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.answer import Exchange, Recording
    from pytest_vllm_gates.facts.finding import Finding

MOST = 600
TEXT_CHARACTERS = 80
FIELDS = ("reasoning_content", "reasoning", "content")


def of_first(findings: Iterable[Finding], exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
    """Return the stream of the first case in which something was found, as evidence."""
    names = [one.case.name for one in findings][:1]
    return [
        {"what": one.cell.name, "pieces": pieces(one.stream)}
        for one in exchanges
        if one.cell.name in names and one.stream.pieces
    ]


def pieces(stream: Recording) -> list[list[Any]]:
    """Return [seconds, text] of each piece that carried text, the first 600 of them.

    An event counts for the piece that ends it. What is no event of a chat carries nothing.
    """
    found: list[list[Any]] = []
    rest = b""
    for at, came in stream.pieces:
        *events, rest = (rest + came).replace(b"\r\n", b"\n").split(b"\n\n")
        if text := "".join(said for event in events for said in _said(event)):
            found.append([round(at, 4), text[:TEXT_CHARACTERS]])
        if len(found) == MOST:
            break
    return found


def _said(event: bytes) -> Iterator[str]:
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
