"""The literal pieces that a line must contain to match a pattern, and one pattern for them all.

A log is searched once for the pieces of every pattern together; only lines with a piece are
matched. The pieces are compared in lower case and contain nothing that JSON escapes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]  # the one place that knows a pattern's parts
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_CHARACTERS = 4
"""The shortest piece that is searched for."""

CHECKED_CHARACTERS = 2
"""The shortest piece that a line found by another piece must also contain."""

ENOUGH_CHARACTERS = 20

LEVEL = " error: "
"""Every line of a traceback in a log has this text, so it does not identify a line."""

KEPT_CHARACTERS = 5

KEPT_PATTERNS = 2048
"""Patterns whose pieces are cached: a run loads the same signatures for every failure."""

# Characters by frequency in logs, rare ones first: a search stops at a piece's first character.
RARE_FIRST = "$*@~+#?|!;j`^%zxq}{b'[],_y=()wgud9836457-vmfacklhs:/n2ri.pe0to1 "

# Characters that a JSON line escapes, and letters that lower case does not cover.
ESCAPED = re.compile(r"[^ !#-%'-;=?-\[\]-~]")

Choice = frozenset[str]
"""Pieces; a matching line contains at least one of them."""


@lru_cache(KEPT_PATTERNS)
def choices(pattern: str) -> tuple[Choice, ...]:
    """Return the pieces for each place of a pattern; a matching line contains one of each."""
    return tuple(dict.fromkeys(_choices(_parser.parse(pattern))))


@lru_cache(KEPT_PATTERNS)
def required(pattern: str) -> Choice:
    """Return the pieces to search for, to find lines that `pattern` could match.

    Raises `ValueError` if none has four characters.
    """
    long_enough = [
        frozenset(map(_rare, choice))
        for choice in choices(pattern)
        if min(map(len, choice)) >= MIN_CHARACTERS
    ]
    specific = (pieces for pieces in long_enough if not any(piece in LEVEL for piece in pieces))
    best = _best(specific) or _best(long_enough)
    if best is None:
        raise ValueError(
            f"{pattern!r} has no literal piece of {MIN_CHARACTERS} characters to look for first"
        )
    return best


def any_of(pieces: Iterable[str]) -> re.Pattern[bytes]:
    """Return a pattern that finds each of these pieces, the longest of those with one prefix."""
    root: dict[str, Any] = {}
    for piece in pieces:
        node = root
        for character in piece:
            node = node.setdefault(character, {})
        node[""] = {}
    return re.compile(_alternatives(root).encode("ascii"))


def _alternatives(node: dict[str, Any]) -> str:
    parts = []
    for character, below in sorted(node.items()):
        if not character:
            continue
        parts.append(re.escape(character) + _alternatives(below))
    if not parts:
        return ""
    joined = parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
    if "" not in node:
        return joined
    return f"(?:{joined})?"


def _choices(sequence: Any) -> Iterator[Choice]:
    """Yield every choice of pieces that a matching line must meet."""
    run = ""
    for operation, argument in sequence:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        if str(operation) == "AT":
            continue
        yield from _pieces(run)
        run = ""
        yield from _choices_inside(str(operation), argument)
    yield from _pieces(run)


def _choices_inside(operation: str, argument: Any) -> Iterator[Choice]:
    if operation == "SUBPATTERN":
        yield from _choices(argument[-1])
    elif operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        if argument[0]:
            yield from _choices(argument[2])
    elif operation == "ATOMIC_GROUP":
        yield from _choices(argument)
    elif operation == "BRANCH":
        bests = [_best(_choices(branch)) for branch in argument[1]]
        if all(bests):
            yield frozenset[str]().union(*(best for best in bests if best))


def _pieces(run: str) -> Iterator[Choice]:
    for piece in ESCAPED.split(run):
        if len(piece) >= CHECKED_CHARACTERS:
            yield frozenset({piece.lower()})


def _rare(piece: str) -> str:
    """Return the part of a piece that begins with its rarest character and is long enough."""
    last = max(0, len(piece) - min(KEPT_CHARACTERS, max(MIN_CHARACTERS, len(piece) - 1)))
    start = min(range(last + 1), key=lambda position: RARE_FIRST.find(piece[position]))
    return piece[start : start + ENOUGH_CHARACTERS]


def _best(choices: Iterable[Choice]) -> Choice | None:
    """Return the most specific choice: long pieces, and few of them."""
    return max(
        choices,
        key=lambda choice: (min(len(piece) for piece in choice), -len(choice)),
        default=None,
    )
