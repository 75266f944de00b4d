"""The heads of packed GPU code, unpacked: LZ4 blocks and zstd frames."""

from __future__ import annotations

import zstandard

ZSTD = b"\x28\xb5\x2f\xfd"
"""The first bytes of a zstd frame (RFC 8878, 3.1.1)."""
ZSTD_PIECE, ZSTD_MOST = 4096, 160 * 1024
"""Bytes of a frame that are read at a time, and at most: a block has 128 KiB (RFC 8878)."""
LZ4_LENGTH, LZ4_LEAST_COPY = 15, 4
"""A length of 15 continues in the next bytes; a copy is of at least four
(lz4_Block_format.md of github.com/lz4/lz4)."""


def zstd_head(frame: bytes, most: int) -> bytes:
    """Return up to so many bytes of a zstd frame's content; fewer if it is damaged."""
    unpacking = zstandard.ZstdDecompressor().decompressobj()
    head = b""
    try:
        for place in range(0, min(len(frame), ZSTD_MOST), ZSTD_PIECE):
            head += unpacking.decompress(frame[place : place + ZSTD_PIECE])
            if len(head) >= most or unpacking.eof:
                break
    except zstandard.ZstdError:
        pass
    return head[:most]


def lz4_head(block: bytes, most: int) -> bytes:
    """Return up to so many bytes of an LZ4 block's content; fewer if it is not a valid block."""
    head, place = bytearray(), 0
    while place < len(block) and len(head) < most:
        token = block[place]
        length, place = _lz4_length(block, place + 1, token >> 4)
        head += block[place : place + length]
        place += length
        if place + 2 > len(block):
            break
        back = int.from_bytes(block[place : place + 2], "little")
        length, place = _lz4_length(block, place + 2, token & LZ4_LENGTH)
        if not 0 < back <= len(head):
            break
        for _ in range(min(length + LZ4_LEAST_COPY, most)):
            head.append(head[-back])
    return bytes(head[:most])


def _lz4_length(block: bytes, place: int, length: int) -> tuple[int, int]:
    """Return a length that continues while its bytes are 255, and its end."""
    if length < LZ4_LENGTH:
        return length, place
    while place < len(block):
        length += block[place]
        place += 1
        if block[place - 1] != 0xFF:  # noqa: PLR2004 - a byte that does not go on
            break
    return length, place
