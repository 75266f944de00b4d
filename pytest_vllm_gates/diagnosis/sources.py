"""A log that several containers or files wrote, and the lines of each.

The prefixes of `kubectl logs --prefix` and `docker compose logs`, and the headlines of `tail` over
several files are recognised. Each part keeps the line numbers of the whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX = re.compile(rb"\[pod/(?P<pod>[^\]\s]+)\] |(?P<service>[A-Za-z][\w.-]*) +\| ")
HEADLINE = re.compile(rb"==> (?P<file>\S.*?) <==\r?$")
LOOKED_AT = 20_000
"""Lines of a log's first block."""
MOST = 64
"""Parts that are read separately; further ones are read together as the last."""


def parts(blocks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield each block of whole lines, once for each part with lines in it.

    A log of one writer has one part, with the name "".
    """
    names: dict[bytes, str] = {}
    current = b""
    lines_so_far = 0
    shown: dict[str, int] = {}
    several: bool | None = None
    for block in blocks:
        if several is None:
            several = _several(block)
        if not several:
            yield "", block
            continue
        by_part: dict[str, list[bytes]] = {}
        lines = block.split(b"\n")
        ended = lines.pop() if not lines[-1] else None
        for position, line in enumerate(lines):
            if headline := HEADLINE.match(line):
                current = headline["file"]
                continue
            match = PREFIX.match(line)
            key = (match["pod"] or match["service"]) if match else current
            if key not in names:
                names[key] = key.decode("utf-8", "replace") if len(names) < MOST else "others"
            mine = by_part.setdefault(names[key], [])
            mine += [b""] * (position - len(mine)) + [line]
        for name, its_lines in by_part.items():
            missing = lines_so_far - shown.get(name, 0)
            yield (
                name,
                b"\n" * missing + b"\n".join(its_lines) + (b"\n" if ended is not None else b""),
            )
            shown[name] = lines_so_far + len(its_lines)
        lines_so_far += len(lines)


def _several(block: bytes) -> bool:
    """Return whether the lines of a log's first block have several writers.

    Most lines have to begin with a service: otherwise it is a column of a table.
    """
    pods, services, files = set[bytes](), set[bytes](), set[bytes]()
    with_service = lines = 0
    for line in block.split(b"\n", LOOKED_AT)[:LOOKED_AT]:
        lines += bool(line.strip())
        if headline := HEADLINE.match(line):
            files.add(headline["file"])
        elif match := PREFIX.match(line):
            (pods if match["pod"] else services).add(match["pod"] or match["service"])
            with_service += match["service"] is not None
    return max(len(pods), len(files)) > 1 or (len(services) > 1 and with_service > lines / 2)
