"""Places in a text, as begin and end, and the text without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.redaction.values import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Span = tuple[int, int]


def everywhere(part: str, text: str) -> Iterator[Span]:
    """Yield the places of a part; overlapping places are joined."""
    begin, end, at = -1, -1, text.find(part)
    while at >= 0:
        if at > end:
            if begin >= 0:
                yield begin, end
            begin = at
        end = at + len(part)
        at = text.find(part, at + 1)
    if begin >= 0:
        yield begin, end


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; spans that overlap or touch are joined."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def without(text: str, spans: Iterable[Span]) -> str:
    """Return a text with a mark in place of each span."""
    parts: list[str] = []
    at = 0
    for begin, end in merged(spans):
        parts += text[at:begin], REDACTED
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def lines_with(text: str, parts: Iterable[str]) -> Iterator[Span]:
    """Yield the lines that contain one of the parts; a line with two may come twice."""
    for part in parts:
        at = text.find(part)
        while at >= 0:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            yield text.rfind("\n", 0, at) + 1, end
            at = text.find(part, end)
