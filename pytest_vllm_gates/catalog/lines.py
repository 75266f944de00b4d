"""Finds the line of a key in a TOML file for messages: a parsed table has no line numbers."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

HEAD = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")
PART = re.compile(r"\"[^\"]*\"|'[^']*'|[^.]+")


class TomlLine(NamedTuple):
    """A line with a table's header, or one that begins with a key."""

    number: int
    """Counted from 1."""
    path: tuple[str, ...]
    """The table's path, followed by the key's."""
    is_head: bool
    item: int | None
    """The index of the table in an array of tables, from 0; None outside such arrays."""


def line_of(text: str, location: tuple[str | int, ...]) -> int | None:
    """Return the 1-based line of the key at `location`; its table's header if the key is missing.

    An integer in `location` is a place in an array; only the first one is used.
    """
    keys = tuple(part for part in location if isinstance(part, str))
    item = next((part for part in location if isinstance(part, int)), None)
    best: int | None = None
    for line in _scanned(text):
        if line.path != keys[: len(line.path)]:
            continue
        # In an array of tables, and inside its tables, only the named table counts.
        if item is not None and line.item not in {None, item}:
            continue
        if not line.is_head:
            return line.number
        best = line.number
    return best


@functools.lru_cache(maxsize=1)
def _scanned(text: str) -> list[TomlLine]:
    """Return the lines of `text` with keys or headers; cached for the next mistake in the text."""
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
