"""Finds the few lines of a log that any of many patterns could match, block by block.

A block is searched once for the pieces that the patterns need; the rest of it is never decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.facts import literals
from pytest_vllm_gates.facts.log_line import LogLine, free
from pytest_vllm_gates.facts.signature import compiled

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

KEPT_LINES = 10
KEPT_BYTES = 64_000


@dataclass(frozen=True)
class Candidate:
    """A line that holds a piece of some patterns, with its neighbours at hand."""

    number: int
    """From 1."""
    line: LogLine
    patterns: tuple[int, ...]
    """Those whose pieces it holds, by their place in the sieve."""
    _block: bytes = field(repr=False)
    _start: int = field(repr=False)
    _end: int = field(repr=False)

    def before(self, lines: int) -> list[LogLine]:
        """Return up to so many lines before it, the nearest last."""
        text = self._block[max(0, self._start - KEPT_BYTES) : max(0, self._start - 1)]
        return [_freed(one) for one in text.split(b"\n")[-lines:]] if self._start else []

    def after(self, lines: int) -> list[LogLine]:
        """Return up to so many lines after it, as far as the block goes."""
        text = self._block[self._end + 1 : self._end + 1 + KEPT_BYTES]
        return [_freed(one) for one in text.split(b"\n")[:lines] if one]


class Sieve:
    """Patterns, and the search for lines that they could match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns: list[re.Pattern[str]] = [compiled(one) for one in patterns]
        by_piece: dict[str, set[int]] = {}
        for place, pattern in enumerate(patterns):
            for piece in literals.required(pattern):
                by_piece.setdefault(piece, set()).add(place)
        # Where one piece begins with another, finding the longer one finds both.
        self._by_piece = {
            piece.encode(): tuple(
                {
                    place
                    for other, places in by_piece.items()
                    if piece.startswith(other)
                    for place in places
                }
            )
            for piece in by_piece
        }
        self._search = literals.any_of(by_piece).search if by_piece else None


class Reader:
    """Reads one log, block after block, and yields what the sieve holds back."""

    def __init__(self, sieve: Sieve) -> None:
        self._sieve = sieve
        self.lines = 0
        """Whole lines read so far."""
        self._kept = b""

    def candidates(self, block: bytes) -> Iterator[Candidate]:
        """Yield the lines of a block, which ends where a line does, that patterns could match."""
        kept = len(self._kept)
        whole = self._kept + block
        first = self.lines - self._kept.count(b"\n")
        counted, number = 0, first + 1
        for start, places in self._found(whole.lower(), kept):
            end = whole.find(b"\n", start)
            end = len(whole) if end < 0 else end
            number += whole.count(b"\n", counted, start)
            counted = start
            for part in whole[start:end].split(b"\r"):
                if part:
                    yield Candidate(number, _freed(part), places, whole, start, end)
        self.lines = first + whole.count(b"\n")
        self._kept = whole[_last_lines(whole) :]

    def _found(self, block: bytes, start: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield where each line begins that holds pieces, and the patterns they are of."""
        search, by_piece = self._sieve._search, self._sieve._by_piece  # noqa: SLF001 - its other half
        if search is None:
            return
        begin, places = -1, set[int]()
        end = -1
        while found := search(block, start):
            at = found.start()
            if at > end:
                if begin >= 0:
                    yield begin, tuple(sorted(places))
                begin, places = block.rfind(b"\n", 0, at) + 1, set()
                end = block.find(b"\n", at)
                end = len(block) if end < 0 else end
            places.update(by_piece[found[0]])
            start = at + 1
        if begin >= 0:
            yield begin, tuple(sorted(places))


def _freed(raw: bytes) -> LogLine:
    return free(raw.decode("utf-8", "replace"))


def _last_lines(block: bytes) -> int:
    """Return where the last few lines of a block begin."""
    at = len(block)
    for _ in range(KEPT_LINES):
        at = block.rfind(b"\n", 0, max(0, at - 1)) + 1
        if not at or len(block) - at > KEPT_BYTES:
            break
    return at if len(block) - at <= KEPT_BYTES else len(block)
