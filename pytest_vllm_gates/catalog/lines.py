"""Which line of a TOML file a key stands on: for messages, since a parsed table has no lines."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

HEAD = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")
PART = re.compile(r"\"[^\"]*\"|'[^']*'|[^.]+")


class TomlLine(NamedTuple):
    """A line that is a table's head or begins with a key."""

    number: int
    """Counted from 1."""
    path: tuple[str, ...]
    """The table's path, and the key's behind it."""
    is_head: bool
    item: int | None
    """Which of an array's tables it stands in, counted from 0; None outside arrays of tables."""


def line_of(text: str, location: tuple[str | int, ...]) -> int | None:
    """Return the 1-based line of the key at `location`; its table's head where the key is not.

    An integer in `location` is a place in an array; only the first one is looked at.
    """
    keys = tuple(part for part in location if isinstance(part, str))
    item = next((part for part in location if isinstance(part, int)), None)
    best: int | None = None
    for line in _scanned(text):
        if line.path != keys[: len(line.path)]:
            continue
        # Of an array's tables, and of those inside them, only the one that is meant counts.
        if item is not None and line.item not in {None, item}:
            continue
        if not line.is_head:
            return line.number
        best = line.number
    return best


@functools.lru_cache(maxsize=1)
def _scanned(text: str) -> list[TomlLine]:
    """Return the lines of `text` that can be meant; the last text is kept for its next mistake."""
    found: list[TomlLine] = []
    items: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    item: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if head := HEAD.match(line):
            table = _parts(head[2])
            if head[1] == "[[":
                items[table] = items.get(table, -1) + 1
            above = (table[:length] for length in range(1, len(table) + 1))
            item = next((items[name] for name in above if name in items), None)
            found.append(TomlLine(number, table, is_head=True, item=item))
        elif key := KEY.match(line):
            found.append(TomlLine(number, table + _parts(key[1]), is_head=False, item=item))
    return found


def _parts(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, without their quotes."""
    return tuple(part.strip().strip("\"'") for part in PART.findall(key.strip()))
