"""The spellings of a secret value in files: in URLs, JSON, HTML, Python and base64."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNESCAPED = re.compile(r"[A-Za-z0-9_.-]+")


def spellings(value: str) -> Iterator[str]:
    """Yield the spellings of a value in a file: plain, quoted, escaped, or within base64.

    A spelling with non-ASCII letters comes twice: also as UTF-8 read as Latin-1, like bytes.
    """
    yield from _base64(value.encode())
    for spelling in [value] if _UNESCAPED.fullmatch(value) else _escaped(value):
        yield spelling
        if not spelling.isascii():
            yield spelling.encode().decode("latin-1")


def _escaped(value: str) -> Iterator[str]:
    import html  # noqa: PLC0415 - only for values that have several spellings
    import json  # noqa: PLC0415
    from urllib.parse import quote, quote_plus  # noqa: PLC0415

    yield value
    for quoted in (quote(value, ""), quote(value), quote_plus(value), quote_plus(value, "/")):
        yield quoted
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield escaped
        yield json.dumps(escaped)[1:-1]
        yield json.dumps(escaped, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value, quote=False)


def _base64(data: bytes) -> Iterator[str]:
    """Yield the base64 of the data at each of the three offsets, in both alphabets."""
    for offset in range(3):
        encoded = binascii.b2a_base64(b"\0" * offset + data, newline=False).decode()
        bits = 8 * (offset + len(data))
        # Only characters whose bits all come from the data.
        inner = encoded[-(-8 * offset // 6) : bits // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
