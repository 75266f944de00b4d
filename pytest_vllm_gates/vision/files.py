"""Writes pixels as files: PNG of any kind, and the JPEG and WebP of flat colours.

Only the standard library is needed: the interpreter of pytest may lack Pillow.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.vision.draw import Pixels

GREY, RGB, GREY_ALPHA, RGBA = 0, 2, 4, 6
"""The colour types of PNG (RFC 2083, 4.1.1)."""
CHANNELS = {1: GREY, 2: GREY_ALPHA, 3: RGB, 4: RGBA}
BLOCK = 8
"""Pixels of a side of a block of JPEG."""


def data_url(data: bytes, kind: str) -> str:
    """Return bytes as a data URL of a content type."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def png(pixels: Pixels, *, bits: int = 8) -> bytes:
    """Return a PNG of pixels with shape (height, width, channels): 1, 2, 3 or 4 channels.

    Two and four channels end with alpha. With 16 `bits` each value is written twice as wide.
    """
    height, width, channels = pixels.shape
    wide = pixels.astype(">u2") * 257 if bits == 16 else pixels  # noqa: PLR2004
    rows = wide.reshape(height, -1)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, bits, CHANNELS[channels], 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class _Bits:
    """Bits in a row; JPEG packs the first one into the highest place of a byte, WebP the lowest."""

    def __init__(self) -> None:
        self._bits: list[int] = []

    def high_first(self, value: int, count: int) -> None:
        self._bits += [value >> place & 1 for place in reversed(range(count))]

    def low_first(self, value: int, count: int) -> None:
        self._bits += [value >> place & 1 for place in range(count)]

    def packed(self, order: str, filler: int) -> bytes:
        bits = self._bits + [filler] * (-len(self._bits) % 8)
        return bytes(np.packbits(np.array(bits, dtype=np.uint8), bitorder=order))  # type: ignore[call-overload]


# The quantiser is 8 for the mean of a block and 1 elsewhere: a mean has steps of one.
_QUANTISER = bytes([8] + [1] * 63)
# Codes of the categories 0 to 11 of a mean's difference, all of four bits (ITU T.81, C.2).
_MEANS = bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12))
# One code of one bit: the block ends, because it has only its mean.
_ENDS = bytes([1] + [0] * 15) + b"\0"


def jpeg(pixels: Pixels, *, orientation: int = 1) -> bytes:
    """Return a baseline JPEG of pixels (height, width, 3) that are flat within 8 x 8 blocks.

    Each block has the colour of its first pixel. `orientation` is that of EXIF, from 1 to 8.
    """
    height, width, _ = pixels.shape
    corners = pixels[::BLOCK, ::BLOCK].astype(float)
    red, green, blue = corners[..., 0], corners[..., 1], corners[..., 2]
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue
    planes = (brightness - 128, (blue - brightness) * 0.564, (red - brightness) * 0.713)
    bits = _Bits()
    before = [0, 0, 0]
    for blocks in np.stack([plane.round().astype(int) for plane in planes], -1).reshape(-1, 3):
        for plane, mean in enumerate(int(value) for value in blocks):
            difference = mean - before[plane]
            before[plane] = mean
            size = abs(difference).bit_length()
            bits.high_first(size, 4)
            bits.high_first(difference if difference > 0 else difference + (1 << size) - 1, size)
            bits.high_first(0, 1)
    scan = bits.packed("big", 1).replace(b"\xff", b"\xff\0")
    frame = struct.pack(">BHHB", 8, height, width, 3)
    frame += b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    segments = [(0xE1, _exif(orientation))] if orientation != 1 else []
    segments += [(0xDB, b"\0" + _QUANTISER), (0xC0, frame), (0xC4, b"\0" + _MEANS)]
    segments += [(0xC4, b"\x10" + _ENDS), (0xDA, b"\3\1\0\2\0\3\0\0\x3f\0")]
    return b"\xff\xd8" + b"".join(_segment(*each) for each in segments) + scan + b"\xff\xd9"


def _segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _exif(orientation: int) -> bytes:
    """Return an EXIF segment's content that has the orientation alone (EXIF 2.3, 4.6.2)."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)


def webp(pixels: Pixels) -> bytes:
    """Return a lossless WebP of pixels (height, width, 3) with at most two colours."""
    height, width, _ = pixels.shape
    bits = _Bits()
    bits.low_first(0x2F, 8)  # RFC 9649, 3.4
    bits.low_first(width - 1, 14)
    bits.low_first(height - 1, 14)
    bits.low_first(0, 1 + 3 + 1 + 1 + 1)  # no alpha, version 0; no transform, cache or groups
    values = [pixels[..., channel].reshape(-1) for channel in (1, 0, 2)]
    symbols = [sorted({int(value) for value in plane}) for plane in values]
    for kinds in (*symbols, [255], [0]):  # green, red, blue, alpha and distance
        _simple_code(bits, kinds)
    for pixel in zip(*values, strict=True):
        for value, kinds in zip(pixel, symbols, strict=True):
            bits.low_first(kinds.index(int(value)), len(kinds) - 1)
    data = bits.packed("little", 0)
    chunk = b"VP8L" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def _simple_code(bits: _Bits, symbols: Sequence[int]) -> None:
    """Write a prefix code of one or two symbols of eight bits."""
    bits.low_first(1, 1)
    bits.low_first(len(symbols) - 1, 1)
    bits.low_first(1, 1)
    for symbol in symbols:
        bits.low_first(symbol, 8)


def gif(pixels: Pixels) -> bytes:
    """Return a GIF (89a) of pixels (height, width, 3) with at most 128 colours."""
    height, width, _ = pixels.shape
    colours, indices = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    table = bytes(colours.astype(np.uint8).reshape(-1)).ljust(128 * 3, b"\0")
    bits = _Bits()
    # Codes stay eight bits wide where the table is cleared before it is full.
    for number, index in enumerate(indices.reshape(-1).tolist()):
        if number % 120 == 0:
            bits.low_first(128, 8)
        bits.low_first(index, 8)
    bits.low_first(129, 8)
    data = bits.packed("little", 0)
    blocks = b"".join(_sub_block(data[at : at + 255]) for at in range(0, len(data), 255))
    screen = struct.pack("<HHBBB", width, height, 0xF6, 0, 0)
    image = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0)
    return b"GIF89a" + screen + table + image + b"\7" + blocks + b"\0;"


def _sub_block(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def with_alpha(pixels: Pixels, clear: Iterable[int]) -> Any:
    """Return pixels with a fourth channel: those of the grey levels in `clear` are transparent."""
    levels = np.array(list(clear))
    is_clear = np.isin(pixels, levels).all(-1)
    return np.dstack([pixels, np.where(is_clear, 0, 255).astype(np.uint8)])
