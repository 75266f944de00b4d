"""Finds a dialect that does not stream: each text comes in one event, at its end.

A server that falls behind puts several tokens into an event, and now and then a whole short text.
So a dialect is reported only if no long text in any of its streams came in pieces.
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
LEAST_OF_A_KIND = 4
"""Texts of answers or of reasoning alone, if the other kind comes in pieces."""
ANSWER, REASONING = "answer", "reasoning"
PARTS = {"text": ANSWER, "thinking": REASONING}


def findings(dialogues: Dialogues) -> Iterator[Finding]:
    """Yield a finding for each dialect that streams every long text in one event."""
    counts = defaultdict[str, list[tuple[str, int]]](list)
    first: dict[str, Reply] = {}
    for _, reply in dialogues.answered:
        if reply.mode == STREAM:
            first.setdefault(reply.dialect, reply)
            counts[reply.dialect] += _long_texts(reply)
    for dialect, texts in counts.items():
        if says := _fault(texts):
            yield Finding(first[dialect].finding_case, says)


def _fault(texts: list[tuple[str, int]]) -> str:
    """Return the fault of a dialect's long texts; each has its number of events."""
    kinds = {kind: [pieces for of, pieces in texts if of == kind] for kind in PARTS.values()}
    alone = [
        f"{kind} "
        for kind, pieces in kinds.items()
        if len(pieces) >= LEAST_OF_A_KIND and max(pieces) == 1
    ]
    every = [pieces for _, pieces in texts]
    if len(every) >= LEAST_TEXTS and max(every) == 1:
        kind, number = "", len(every)
    elif alone:
        kind, number = alone[0], len(kinds[alone[0].strip()])
    else:
        return ""
    return (
        f"each of {number} {kind}texts of {LONG} characters or more came in one event: clients "
        "wait for the whole text"
    )


def _long_texts(reply: Reply) -> list[tuple[str, int]]:
    """Return the kind and the number of events of each long text of a stream."""
    texts = defaultdict[tuple[object, ...], list[str]](list)
    for event in reply.events:
        for kind, place, piece in _pieces(event):
            if piece:
                texts[kind, place].append(piece)
    return [
        (str(kind), len(pieces))
        for (kind, _), pieces in texts.items()
        if len("".join(pieces)) >= LONG
    ]


def _pieces(event: Event) -> Iterator[tuple[str, tuple[object, ...], str]]:
    """Yield the pieces that an event adds to texts, with each text's kind and place."""
    data = event.data
    delta = data.get("delta")
    if isinstance(delta, str) and event.kind.endswith("text.delta"):
        kind = REASONING if "reasoning" in event.kind else ANSWER
        yield kind, (data.get("item_id"), data.get("content_index")), delta
    elif isinstance(delta, dict):
        for part, kind in PARTS.items():
            if isinstance(delta.get(part), str):
                yield kind, (data.get("index"),), delta[part]
    for choice in records(data.get("choices")):
        if isinstance(choice.get("text"), str):
            yield ANSWER, (choice.get("index"),), choice["text"]
