"""Finds the few lines of a log that any of many patterns could match, block by block.

A block is searched once for the pieces that the patterns need; its other lines are not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.diagnosis import literals
from pytest_vllm_gates.diagnosis.signature import compiled
from pytest_vllm_gates.server.log_line import LogLine, free

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_vllm_gates.bounded.patterns import BoundedPattern

    Search = Callable[[bytes, int], "re.Match[bytes] | None"]

WORTH_A_SEARCH = 1000
KEPT_BYTES = 128_000
"""Bytes before a block that are kept for a look back, and the maximum distance of a look."""


@dataclass(frozen=True)
class Candidate:
    """A line that contains a piece of some patterns, with access to its neighbours."""

    number: int
    """From 1."""
    line: LogLine
    patterns: tuple[int, ...]
    """The patterns whose pieces it contains, by their place in the sieve."""
    _block: bytes = field(repr=False)
    _start: int = field(repr=False)
    _end: int = field(repr=False)

    def window(self, lines: int) -> bytes:
        """Return the line and up to `lines` lines before it, unchanged from the log."""
        floor = max(0, self._start - KEPT_BYTES)
        start = self._start
        for _ in range(lines):
            start = self._block.rfind(b"\n", floor, max(floor, start - 1)) + 1
            if start <= floor:
                return self._block[floor : self._end]
        return self._block[start : self._end]

    def above(self, lines: int) -> Iterator[LogLine]:
        """Yield up to `lines` lines before it, the nearest first."""
        for data in reversed(self.window(lines).split(b"\n")[:-1]):
            yield freed(data)

    def after(self, lines: int) -> list[LogLine]:
        """Return up to `lines` lines after it, within the block."""
        text = self._block[self._end + 1 : self._end + 1 + KEPT_BYTES]
        return [freed(data) for data in text.split(b"\n", lines)[:lines] if data]


class Sieve:
    """Patterns, and the search for lines that they could match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns: list[BoundedPattern] = [compiled(pattern) for pattern in patterns]
        self._choices: list[tuple[tuple[bytes, ...], ...]] = []
        by_piece: dict[str, set[int]] = {}
        for place, pattern in enumerate(patterns):
            choices = [[piece.encode() for piece in choice] for choice in literals.choices(pattern)]
            choices.sort(key=lambda choice: -min(len(piece) for piece in choice))
            self._choices.append(tuple(tuple(choice) for choice in choices))
            for piece in literals.required(pattern):
                by_piece.setdefault(piece, set()).add(place)
        # If one piece begins with another, finding the longer one finds both.
        self.by_piece = {
            piece.encode(): tuple(
                {
                    place
                    for prefix, places in by_piece.items()
                    if piece.startswith(prefix)
                    for place in places
                }
            )
            for piece in by_piece
        }
        self._searches: dict[frozenset[int], Search | None] = {}

    def search(self, without: frozenset[int] = frozenset()) -> Search | None:
        """Return a search for the next piece of any pattern not left out; None if all are."""
        if without not in self._searches:
            pieces = [
                data.decode() for data, places in self.by_piece.items() if {*places} - without
            ]
            self._searches[without] = literals.any_of(pieces).search if pieces else None
        return self._searches[without]

    def matches(self, place: int, window: bytes) -> bool:
        """Return whether a line of a window matches a pattern."""
        small = window.lower()
        if not all(any(piece in small for piece in choice) for choice in self._choices[place]):
            return False
        search = self.patterns[place].search
        lines = window.replace(b"\r", b"\n").split(b"\n")
        return any(search(freed(line).text) for line in lines if line)

    def could(self, line: bytes, places: set[int]) -> tuple[int, ...]:
        """Return the patterns whose other pieces a line, in lower case, also contains."""
        possible = []
        # Loops instead of generators: this runs for every line that a traceback repeats.
        for place in places:
            for choice in self._choices[place]:
                for piece in choice:
                    if piece in line:
                        break
                else:
                    break
            else:
                possible.append(place)
        return tuple(sorted(possible))


class Reader:
    """Reads one log, block after block, and yields the lines that the sieve finds."""

    def __init__(self, sieve: Sieve) -> None:
        self._sieve = sieve
        self.lines = 0
        """Whole lines read so far."""
        self._kept = b""
        self._ignored: frozenset[int] = frozenset()
        self._left_out: frozenset[int] = frozenset()
        self._wasted = 0

    def ignore(self, places: Iterable[int]) -> None:
        """Skip lines that only these patterns could match, from the next line on."""
        self._ignored = frozenset(places)
        if not self._left_out <= self._ignored:
            self._left_out = frozenset()

    def candidates(self, block: bytes) -> Iterator[Candidate]:
        """Yield the lines that patterns could match; the block ends at the end of a line."""
        # After many useless hits, compiling a new search is worth its cost.
        if self._wasted > WORTH_A_SEARCH:
            self._left_out, self._wasted = self._ignored, 0
        kept_bytes = len(self._kept)
        block_text = self._kept + block
        first_line = self.lines - self._kept.count(b"\n")
        counted_to, number = 0, first_line + 1
        for start, end, places in self._lines(block_text.lower(), kept_bytes):
            number += block_text.count(b"\n", counted_to, start)
            counted_to = start
            for part in block_text[start:end].split(b"\r"):
                if part:
                    yield Candidate(number, freed(part), places, block_text, start, end)
        self.lines = first_line + block_text.count(b"\n")
        self._kept = block_text[_last_lines(block_text) :]

    def _lines(self, block: bytes, start: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield the start and end of lines that patterns could match, and those patterns.

        `block` is in lower case; text before `start` is not searched.
        """
        sieve, begin, end, places = self._sieve, -1, -1, set[int]()
        while (search := sieve.search(self._left_out)) and (match := search(block, start)):
            position = match.start()
            if position > end:
                if could := self._relevant(block[begin:end], places):
                    yield begin, end, could
                begin, places = block.rfind(b"\n", 0, position) + 1, set()
                end = block.find(b"\n", position)
                end = len(block) if end < 0 else end
            places.update(sieve.by_piece[match[0]])
            start = position + 1
        if could := self._relevant(block[begin:end], places):
            yield begin, end, could

    def _relevant(self, line: bytes, places: set[int]) -> tuple[int, ...]:
        relevant = places.difference(self._ignored)
        self._wasted += bool(places) and not relevant
        return self._sieve.could(line, relevant) if relevant else ()


def freed(raw: bytes) -> LogLine:
    """Return a line of a block without its prefixes."""
    return free(raw.decode("utf-8", "replace"))


def _last_lines(block: bytes) -> int:
    """Return the start of a block's last lines, which a look back may need."""
    if len(block) <= KEPT_BYTES:
        return 0
    return block.find(b"\n", len(block) - KEPT_BYTES) + 1 or len(block)
