"""A scene that can be drawn, and the words that describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (30, 60, 220),
    "yellow": (240, 210, 30),
    "purple": (150, 50, 180),
    "black": (20, 20, 20),
}
"""The colours of a scene, as red, green and blue from 0 to 255."""
PLACES = ("left", "right", "top", "bottom")
WHICH = "red"
"""The colour of one of two squares, for which the question looks."""

Kind = Literal["colour", "place", "stripes", "digit", "count", "which", "plain"]


@dataclass(frozen=True)
class Scene:
    """One picture: a square somewhere, stripes, a digit, some squares, two, or one colour."""

    kind: Kind
    colours: tuple[str, ...] = ("red",)
    """Names in `COLOURS`: from left to right for stripes or two squares, else the only one."""
    width: int = 96
    height: int = 96
    place: str = "middle"
    """One of `PLACES`, or the middle."""
    number: int = 0
    """The digit, or how many squares there are, from 1 to 4."""
    share: float = 0.5
    """Side of a square as a part of the picture's shorter side."""
    background: int = 245
    """Brightness behind, from 0 to 255."""

    @property
    def name(self) -> str:
        """The scene in a few words."""
        what = {
            "colour": f"{self.colours[0]} square",
            "plain": f"plain {self.colours[0]}",
            "place": f"{self.colours[0]} square {self.place}",
            "stripes": "-".join(self.colours),
            "digit": f"digit {self.number}",
            "count": f"{self.number} square{'s' if self.number > 1 else ''}",
            "which": " beside ".join(self.colours),
        }[self.kind]
        return f"{what}, {self.width}x{self.height}"

    @property
    def words(self) -> tuple[str, ...]:
        """The expected content, in order."""
        if self.kind == "place":
            return (self.place,)
        if self.kind in {"digit", "count"}:
            return (str(self.number),)
        if self.kind == "which":
            return (PLACES[self.colours.index(WHICH)],)
        return self.colours
