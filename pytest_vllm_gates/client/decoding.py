"""Decompresses an answer in small pieces, so that a small body cannot become a large one at once.

The clients request uncompressed answers (`Accept-Encoding: identity`); a gateway may compress them
anyway.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import httpx2 as httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT_BYTES = 64 * 1024
ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
"""zlib's number for detecting which of the two it is."""
KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
PLAIN = frozenset({"", "identity"})


class Decompressor:
    """Takes the pieces of a compressed body; yields decompressed pieces."""

    def __init__(self, encoding: str) -> None:
        """Raises `httpx.DecodingError` for an unknown encoding that was not requested."""
        if encoding not in KNOWN:
            raise httpx.DecodingError(
                f"the answer is compressed as {encoding[:40]!r}, but the request did not allow it"
            )
        self._zlib = zlib.decompressobj(ZLIB_OR_GZIP)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of compressed bytes, in pieces of at most `OUTPUT_BYTES`."""
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
