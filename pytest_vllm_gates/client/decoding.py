"""Decompresses an answer in small pieces, so that a small body cannot become a large one at once.

The clients ask for answers as they are (`Accept-Encoding: identity`); a gateway may compress all
the same.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import httpx2 as httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT_BYTES = 64 * 1024
ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
"""zlib's number for: find out which of the two it is."""
KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
PLAIN = frozenset({"", "identity"})


class Decompressor:
    """Takes the pieces of a compressed body; yields those of the body."""

    def __init__(self, encoding: str) -> None:
        """Raises `httpx.DecodingError` for an encoding that was not asked for and is not known."""
        if encoding not in KNOWN:
            raise httpx.DecodingError(
                f"the answer is compressed as {encoding[:40]!r}, though it was asked for as it is"
            )
        self._zlib = zlib.decompressobj(ZLIB_OR_GZIP)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what some compressed bytes hold, at most `OUTPUT_BYTES` a piece."""
        while data:
            try:
                output = self._zlib.decompress(data, OUTPUT_BYTES)
            except zlib.error as error:
                raise httpx.DecodingError(f"the answer cannot be decompressed: {error}") from error
            if output:
                yield output
            data = self._zlib.unconsumed_tail
            if not output and not data:
                return
