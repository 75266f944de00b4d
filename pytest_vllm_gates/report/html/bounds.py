"""How much of what was found is shown, and what text becomes before it is: hostile as it may be."""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")
CONTROL_PICTURES = 0x2400
UNSAFE = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Cn")
AS_IT_IS = "\n\t\u200d"  # what holds lines, and an emoji, together
TAIL_SHARE = 4
LEAST = 2


@dataclasses.dataclass(frozen=True)
class Limits:
    """The most that is shown: of a text in characters, of lists in entries."""

    text: int = 6000
    """Characters of a reason, an excerpt, a piece of evidence."""
    line: int = 400
    """Characters of what stands in a cell or a heading."""
    items: int = 200
    """Rows of a table, entries of a list."""
    failures: int = 120
    """Failures of a family that are laid out with their evidence."""
    marks: int = 240
    """Marks of a drawing."""

    def halved(self) -> Limits:
        """Return half of it all; what is least stays, so that something is always said."""
        values = dataclasses.asdict(self)
        return Limits(**{name: max(LEAST, value // 2) for name, value in values.items()})

    @property
    def least(self) -> bool:
        """Whether there is no less."""
        return self.halved() == self


def clean(text: str) -> str:
    """Return text in which nothing hides: what is invisible or turns text around is spelled out.

    NUL and its like become their pictures, lone surrogates and bidirectional controls their
    code points, so that any file and any terminal can hold it and nothing reads otherwise than it
    is.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_clean, text))


def _clean(character: str) -> str:
    if character in AS_IT_IS or unicodedata.category(character) not in UNSAFE:
        return character
    if character < " ":
        return chr(CONTROL_PICTURES + ord(character))
    return f"⟨U+{ord(character):04X}⟩"


def cut(text: object, most: int) -> str:
    """Return text of so many characters at most: its beginning, its end, and what was left out."""
    whole = text if isinstance(text, str) else str(text)
    if len(whole) <= most:
        return whole
    tail = most // TAIL_SHARE
    left_out = len(whole) - most
    note = f"… [{left_out:,} characters left out; verdict.json has them] …"
    return f"{whole[: most - tail]}{note}{whole[len(whole) - tail :] if tail else ''}"


def first(found: Iterable[T], most: int) -> tuple[list[T], int]:
    """Return the first of what was found, and how many were left out."""
    every = list(found)
    return every[:most], max(0, len(every) - most)


def spread(found: Sequence[T], most: int) -> list[T]:
    """Return so many at most, evenly taken from the first to the last."""
    if len(found) <= most:
        return list(found)
    return [found[round(at * (len(found) - 1) / (most - 1))] for at in range(most)]


def mapping(found: Any) -> dict[str, Any]:
    """Return evidence that should be a table, empty where it is none."""
    return found if isinstance(found, dict) else {}


def listing(found: Any) -> list[Any]:
    """Return evidence that should be a list, empty where it is none."""
    return found if isinstance(found, list) else []


def number(found: Any) -> float | None:
    """Return a figure; None for what is none, infinity and NaN among them."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if abs(found) < 1e18 else None  # noqa: PLR2004 - NaN compares so, too
