"""Finds the dialect whose streams are no streams: each text comes in one event, at its end.

A server that falls behind puts several tokens into an event, and now and then a whole short text.
So a dialect is told only where no long text of any of its streams came in pieces.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.untyped import records
from pytest_vllm_gates.dialects.types import STREAM
from pytest_vllm_gates.outcomes import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.dialects.types import Dialogues, Event, Reply

LONG = 24
"""Characters of a text that takes several tokens."""
LEAST_TEXTS = 3
PARTS = ("text", "thinking")


def findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield a finding for each dialect that streams every long text in one event."""
    counts = defaultdict[str, list[int]](list)
    first: dict[str, Reply] = {}
    for _, reply in dialogues.answered:
        if reply.mode == STREAM:
            first.setdefault(reply.dialect, reply)
            counts[reply.dialect] += _long_texts(reply)
    for dialect, pieces in counts.items():
        if len(pieces) >= LEAST_TEXTS and max(pieces) == 1:
            says = (
                f"each of {len(pieces)} texts of {LONG} characters or more came in one event: "
                "clients wait for the whole text"
            )
            yield Finding(first[dialect].finding_case, says)


def _long_texts(reply: Reply) -> list[int]:
    """Return in how many events each long text of a stream came."""
    texts = defaultdict[tuple[object, ...], list[str]](list)
    for event in reply.events:
        for place, piece in _pieces(event):
            if piece:
                texts[place].append(piece)
    return [len(pieces) for pieces in texts.values() if len("".join(pieces)) >= LONG]


def _pieces(event: Event) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield what an event adds to texts, each with the text's place."""
    data = event.data
    delta = data.get("delta")
    if isinstance(delta, str) and event.kind.endswith("text.delta"):
        yield (data.get("item_id"), data.get("content_index")), delta
    elif isinstance(delta, dict):
        for part in PARTS:
            if isinstance(delta.get(part), str):
                yield (data.get("index"),), delta[part]
    for choice in records(data.get("choices")):
        if isinstance(choice.get("text"), str):
            yield (choice.get("index"),), choice["text"]
