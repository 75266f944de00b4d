"""zstd frames unpacked piece by piece: with little memory; a cut file is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    import io

PIECE_BYTES = 512
"""Packed bytes at a time: four bytes may expand to 128 KiB (RFC 8878, 3.1.1.2.3)."""


class ZstdReader:
    """The content of a file of zstd frames, one after another."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source = source
        self._unpacking = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._packed = self._ready = b""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end.

        Raises `EOFError` if the last frame has no end, `zstandard.ZstdError` for a damaged
        frame.
        """
        while not self._ready:
            piece = self._packed or self._source.read(PIECE_BYTES)
            self._packed = b""
            if not piece:
                if self._begun and not self._unpacking.eof:
                    raise EOFError("the last frame has no end")
                return b""
            if self._unpacking.eof:
                self._unpacking = zstandard.ZstdDecompressor().decompressobj()
            self._begun = True
            self._ready = self._unpacking.decompress(piece)
            self._packed = self._unpacking.unused_data if self._unpacking.eof else b""
        data, self._ready = self._ready[:size], self._ready[size:]
        return data
