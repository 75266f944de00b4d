"""Drawings as a template writes them: across in percent, so that they fit any width; down in px.

Colours are classes of the style sheet, which knows light, dark and print.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Mark:
    """One shape. `x` and `width` are percent of the drawing's width, `y` and `height` px."""

    kind: str
    """`rect`, `line` (from x, y by width, height), `dot`, `text`."""
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    style: str = ""
    text: str = ""
    anchor: str = "start"


@dataclass
class Drawing:
    """Marks, and the same in words for those who do not see them."""

    height: float
    says: str
    """What a screen reader says in place of the drawing."""
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

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Add a word."""
        self.marks.append(Mark("text", pct(x), y, style=style, text=text, anchor=anchor))


@dataclass(frozen=True)
class Scale:
    """Where values stand, in percent between two margins."""

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
    """Return a scale on which all values have room; with `zero` it holds 0."""
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
    """Return a place as it is written."""
    return round(value, 2)
