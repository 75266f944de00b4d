"""The text of a log as bytes of UTF-8: of gzip, bzip2, xz and zstd files, and of UTF-16.

A file that is not text is refused with its kind and the command that makes text of it. A packed
file is read up to `UNPACKED_BYTES` and for `UNPACKING_S` of the processor's time.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import time
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import zstandard

from pytest_vllm_gates.bounded import limits
from pytest_vllm_gates.bounded.errors import UnreadableError
from pytest_vllm_gates.bounded.zstd import ZstdReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

HEAD_BYTES = 4096
BUFFER_BYTES = 2**20
UNPACKED_BYTES = 2**30
"""Size of an unpacked log; a packed file may unpack to a thousand times its size."""
UNPACKING_S = 60.0
"""Seconds of the processor in which a packed log is to be read and explained."""
TEXT_CONTROLS = frozenset(b"\t\n\r\x08\x0b\x0c\x1b")
MOST_CONTROLS = 0.1
"""Share of control characters above which bytes are not text."""
# The first bytes of a file (https://en.wikipedia.org/wiki/List_of_file_signatures).
REFUSED = (
    (b"\x04\x22\x4d\x18", "compressed by lz4: `lz4 -dc {path} | vllm-gates explain -`"),
    (b"PK\x03\x04", "a zip archive: unpack it, and explain the folder"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it, and explain the folder"),
    (b"\x7fELF", "a program or a core dump, not a log"),
    (b"%PDF-", "a PDF document, not a log"),
    (b"\x89PNG", "a picture: the text itself is needed"),
    (b"\xff\xd8\xff", "a picture: the text itself is needed"),
    (b"SQLite format 3", "an SQLite database, not a log"),
)
TAR = (257, b"ustar")
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
UNPACKERS = {"gzip": "gzip", "bzip2": "bzip2", "xz": "xz", "zstd": "zstd"}
BROKEN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError, zstandard.ZstdError)


PACKED: tuple[tuple[bytes, str, Callable[[io.BufferedReader], object]], ...] = (
    (b"\x1f\x8b", "gzip", lambda source: gzip.GzipFile(fileobj=source)),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", "zstd", ZstdReader),
)


class LogBytes(Protocol):
    """A source of a log's bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most that many bytes; none at the end."""


class _Recoded:
    """UTF-8 of a text in another encoding."""

    def __init__(self, source: BinaryIO, encoding: str) -> None:
        self._reader = codecs.getreader(encoding)(source, "replace")

    def read(self, size: int, /) -> bytes:
        """Return at most that many characters, as UTF-8."""
        return self._reader.read(size).encode("utf-8", "replace")


class _Unpacked(io.RawIOBase):
    """The contents of a compressed file; a file that is cut off is refused."""

    def __init__(self, source: BinaryIO, path: Path, kind: str) -> None:
        super().__init__()
        self._source, self._path, self._kind = source, path, kind
        self._size, self._began = 0, time.process_time()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer, return the count of bytes; raises `UnreadableError` for a cut-off file."""
        view = memoryview(buffer)
        try:
            data = self._source.read(len(view))
        except BROKEN as error:
            raise UnreadableError(
                self._path,
                f"the {self._kind} file is cut off or damaged ({error}), and was not read to its "
                "end: fetch it again",
            ) from error
        view[: len(data)] = data
        self._size += len(data)
        self._check()
        return len(data)

    def _check(self) -> None:
        seconds = time.process_time() - self._began
        if self._size <= UNPACKED_BYTES and seconds <= UNPACKING_S:
            return
        beyond = f"unpacks to more than {limits.amount(UNPACKED_BYTES)}"
        if self._size <= UNPACKED_BYTES:
            beyond = f"takes more than {UNPACKING_S:g} s ({limits.amount(self._size)} so far)"
        program = UNPACKERS[self._kind]
        raise UnreadableError(
            self._path,
            f"the {self._kind} file {beyond}, and was not read to its end\n"
            f"explain its end: {program} -dc {self._path} | tail -c 200M | vllm-gates explain -",
        )


def text_of(source: BinaryIO, path: Path) -> LogBytes:
    """Return a reader of a log's text; raises `UnreadableError` if it is not text."""
    buffered = io.BufferedReader(cast("io.RawIOBase", source), BUFFER_BYTES)
    head = buffered.peek(HEAD_BYTES)[:HEAD_BYTES]
    for magic, kind, opener in PACKED:
        if head.startswith(magic):
            unpacked = _Unpacked(cast("BinaryIO", opener(cast("Any", buffered))), path, kind)
            buffered = io.BufferedReader(unpacked, BUFFER_BYTES)
            break
    return _decoded(buffered, path)


def _decoded(buffered: io.BufferedReader[Any], path: Path) -> LogBytes:
    head = buffered.peek(HEAD_BYTES)[:HEAD_BYTES]
    _check(head, path)
    if head.startswith(codecs.BOM_UTF8):
        buffered.read(len(codecs.BOM_UTF8))
        return buffered
    encoding = _encoding(head)
    return _Recoded(cast("BinaryIO", buffered), encoding) if encoding else buffered


def _encoding(head: bytes) -> str | None:
    """Return the encoding of a text that is not UTF-8; None for one that may be UTF-8."""
    for bom, encoding in BOMS:
        if head.startswith(bom):
            return encoding
    pairs = len(head) // 2
    if pairs and head[1::2].count(0) > pairs * 0.7 and head[::2].count(0) < pairs * 0.1:
        return "utf-16-le"
    if pairs and head[::2].count(0) > pairs * 0.7 and head[1::2].count(0) < pairs * 0.1:
        return "utf-16-be"
    return None


def _check(head: bytes, path: Path) -> None:
    for magic, what in REFUSED:
        if head.startswith(magic):
            raise UnreadableError(path, what.format(path=path))
    place, magic = TAR
    if head[place : place + len(magic)] == magic:
        raise UnreadableError(path, "a tar archive: unpack it, and explain the folder")
    if _encoding(head):
        return
    text = head.strip(b"\0")  # copytruncate leaves these before later lines
    controls = sum(1 for byte in text if byte < ord(" ") and byte not in TEXT_CONTROLS)
    if text and controls > MOST_CONTROLS * len(text):
        raise UnreadableError(path, "binary data, not a log: nothing was read of it")
