"""Drawings for the page's templates, and the limits and cleaning of the text on the page.

A drawing's width is in percent, so that it fits any screen; its height is in px. Colours are
classes of the style sheet, which has light, dark and print variants.
"""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Mark:
    """One shape. `x` and `width` are percent of the drawing's width, `y` and `height` px."""

    kind: str
    """`rect`, `line` (from x, y to width, height), `dot`, `text`, `path` (through many places)."""
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    style: str = ""
    text: str = ""
    """The word, or a path's places: `x,y` in percent of its box."""
    anchor: str = "start"


@dataclass
class Drawing:
    """Marks, and a description in words for screen readers."""

    height: float
    says: str
    """The text that a screen reader reads instead of the drawing."""
    marks: list[Mark] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """Add a rectangle."""
        self.marks.append(Mark("rect", pct(x), y, pct(width), height, style))

    def line(self, x: float, y: float, to_x: float, to_y: float, style: str) -> None:
        """Add a line."""
        self.marks.append(Mark("line", pct(x), y, pct(to_x), to_y, style))

    def dot(self, x: float, y: float, style: str, radius: float = 3.0) -> None:
        """Add a dot."""
        self.marks.append(Mark("dot", pct(x), y, radius, style=style))

    def path(self, y: float, height: float, places: str, style: str) -> None:
        """Add a line through many places of a box with the drawing's width."""
        self.marks.append(Mark("path", 0.0, y, 100.0, height, style, places))

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Add a word."""
        self.marks.append(Mark("text", pct(x), y, style=style, text=text, anchor=anchor))


@dataclass(frozen=True)
class Scale:
    """The places of values, in percent between two margins."""

    low: float
    high: float
    left: float = 1.0
    right: float = 99.0

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def ticks(self, about: int = 4) -> Iterator[float]:
        """Yield round values between the ends."""
        step = round_step((self.high - self.low) / about)
        at = math.ceil(self.low / step - 1e-9) * step
        while at <= self.high + step * 1e-9:
            yield 0.0 if abs(at) < step / 1e6 else at
            at += step


def scale(values: Sequence[float], *, zero: bool = False) -> Scale:
    """Return a scale that includes all values, and 0 with `zero`."""
    every = [*values, *([0.0] if zero else [])]
    low, high = min(every), max(every)
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    margin = 0.04 * (high - low)
    return Scale(0.0 if zero and low == 0 else low - margin, high + margin)


def round_step(rough: float) -> float:
    """Return the round number next above."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * (1 - 1e-9))


def pct(value: float) -> float:
    """Return a place as text."""
    return round(value, 2)


T = TypeVar("T")
CONTROL_PICTURES = 0x2400
UNSAFE = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Cn")
AS_IT_IS = "\n\t\u200d"  # line breaks, tabs, and the joiner within emoji
TAIL_SHARE = 4
LEAST = 2


@dataclasses.dataclass(frozen=True)
class TextLimits:
    """The most that is shown: characters of a text, entries of a list."""

    text: int = 6000
    """Characters of a reason, an excerpt, a piece of evidence."""
    line: int = 400
    """Characters of a cell or a heading."""
    items: int = 200
    """Rows of a table, entries of a list."""
    failures: int = 120
    """Failures of a family that are laid out with their evidence."""
    passed: int = 600
    """Other tests of all families together that are laid out with their evidence."""
    marks: int = 240
    """Marks of a drawing."""

    def halved(self) -> TextLimits:
        """Return half of each limit; the least limits stay, so that something is always shown."""
        values = dataclasses.asdict(self)
        return TextLimits(**{name: max(LEAST, value // 2) for name, value in values.items()})

    def with_few_passed(self) -> TextLimits:
        """Return the same limits with a tenth of the tests that passed."""
        return dataclasses.replace(self, passed=max(LEAST, self.passed // 10))

    @property
    def least(self) -> bool:
        """Whether the limits cannot become smaller."""
        return self.halved() == self


def clean(text: str) -> str:
    """Return text in which characters that are invisible or reverse text are spelled out.

    Control characters become their pictures, lone surrogates and bidirectional controls become
    their code points, so that every file and terminal can show the text, and nothing misleads the
    reader.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_CLEANED)


class _Cleaned(dict[int, str]):
    """Each character's shown form, computed when it first occurs."""

    def __missing__(self, code: int) -> str:
        """Return the character's text."""
        shown = self[code] = _clean(chr(code))
        return shown


_CLEANED = _Cleaned()


def _clean(character: str) -> str:
    if character in AS_IT_IS or unicodedata.category(character) not in UNSAFE:
        return character
    if character < " ":
        return chr(CONTROL_PICTURES + ord(character))
    return f"⟨U+{ord(character):04X}⟩"


def cut(value: object, most: int) -> str:
    """Return at most `limit` characters of a text: its beginning, its end, and a note between."""
    text = value if isinstance(value, str) else str(value)
    if len(text) <= most:
        return text
    tail = most // TAIL_SHARE
    left_out = len(text) - most
    note = f"… [{left_out:,} characters left out; verdict.json has them] …"
    return f"{text[: most - tail]}{note}{text[len(text) - tail :] if tail else ''}"


def first(items: Iterable[T], most: int) -> tuple[list[T], int]:
    """Return the first entries, and how many were left out."""
    listed = list(items)
    return listed[:most], max(0, len(listed) - most)


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most `limit` entries, taken evenly from the first to the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def mapping(value: Any) -> dict[str, Any]:
    """Return evidence that should be a table; empty if it is not one."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    """Return evidence that should be a list; empty if it is not one."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """Return a figure; None for anything else, also for infinity and NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None  # noqa: PLR2004 - NaN compares so, too
