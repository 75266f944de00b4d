"""Opens only regular files, and reads at most a limit of bytes, also after decompression."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_vllm_gates.bounded import limits, syntax
from pytest_vllm_gates.bounded.errors import MalformedError, UnreadableError
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Otherwise opening a pipe without a writer, or a terminal, would block."""
KINDS = {
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
GZIP = 16 + zlib.MAX_WBITS
"""zlib's number for gzip alone."""
PIECE_BYTES = 2**16


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file, or a link to one, for reading.

    Raises `UnreadableError` for anything else, at once: a pipe or device is never read.
    """
    try:
        handle = _handle(path)
    except OSError as error:
        raise UnreadableError(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise UnreadableError(path, f"cannot be read: {error}") from error
    with os.fdopen(handle, "rb") as file:
        yield file


def _handle(path: Path) -> int:
    _check_kind(path, path.stat())  # opening a device may have effects
    handle = os.open(path, FLAGS)
    try:
        _check_kind(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_kind(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableError(path, "cannot be read: Is a directory")
    kind = KINDS.get(stat.S_IFMT(status.st_mode), "not a file")
    raise UnreadableError(
        path, f"cannot be read: it is {kind}\nwrite its content into a file, and name that"
    )


def most(default: int) -> int:
    """Return the limit of bytes in force: the variable's, else the default.

    Raises `UserError` for a variable that is not a positive number.
    """
    text = os.environ.get(limits.VARIABLE)
    if not text:
        return default
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not (size > 0 and math.isfinite(size * limits.MIB)):
        raise UserError(
            f"{limits.VARIABLE}={text[:40]!r}: expected a number of MiB above 0\n"
            f"leave the default: unset {limits.VARIABLE}"
        )
    return int(size * limits.MIB)


def data(path: Path, default: int) -> bytes:
    """Return a file's bytes; raises `UnreadableError` for one of more than the limit."""
    limit = most(default)
    with opened(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            # At most the limit is read, whatever size the file reports.
            content = file.read(limit + 1) if size <= limit else b""
        except OSError as error:
            raise UnreadableError(path, f"cannot be read: {error.strerror}") from error
    if max(size, len(content)) > limit:
        raise UnreadableError(path, too_large(max(size, len(content)), limit))
    return content


def too_large(size: int, limit: int) -> str:
    """Return why so many bytes are refused, with the command that raises the limit."""
    return (
        f"has {limits.amount(size)}, and at most {limits.amount(limit)} are read\n"
        "raise the limit if the file is meant to be so large: "
        f"export {limits.VARIABLE}={_enough(size)}"
    )


def _enough(size: int) -> int:
    return math.ceil(size / limits.MIB) + 1


def text(path: Path, default: int = limits.TEXT_BYTES) -> str:
    """Return a file's text; raises `FileError`, with the offset of a byte that is not UTF-8."""
    content = data(path, default)
    try:
        return syntax.decoded(content)
    except syntax.BadSyntaxError as error:
        raise MalformedError(path, f"is not text: {error}") from error


def json(
    path: Path,
    default: int = limits.JSON_BYTES,
    *,
    unique: bool = False,
    finite: bool = False,
    whole: bool = False,
) -> Any:
    """Return a JSON file's value; raises `FileError`. `syntax.json_value` describes the flags."""
    content = data(path, default)
    try:
        return syntax.json_value(content, unique=unique, finite=finite, whole=whole)
    except syntax.BadSyntaxError as error:
        raise MalformedError(path, f"not valid JSON: {error}") from error


def json_object(
    path: Path,
    default: int = limits.JSON_BYTES,
    *,
    unique: bool = False,
    finite: bool = False,
    whole: bool = False,
) -> dict[str, Any]:
    """Return a JSON file's object; raises `FileError` as `json` does, and for another value."""
    value = json(path, default, unique=unique, finite=finite, whole=whole)
    if not isinstance(value, dict):
        raise MalformedError(path, f"is not a JSON object: {limits.excerpt(value)}")
    return value


def gunzipped(path: Path | str, content: bytes, default: int = limits.LOG_BYTES) -> bytes:
    """Return a file's decompressed gzip data; raises `FileError`, also at the size limit."""
    limit = most(default)
    pieces: list[bytes] = []
    size = 0
    while content:
        member = zlib.decompressobj(GZIP)
        while not member.eof:
            try:
                piece = member.decompress(content, PIECE_BYTES)
            except zlib.error as error:
                raise MalformedError(path, f"is not gzip data: {error}") from error
            content = member.unconsumed_tail
            size += len(piece)
            if size > limit:
                raise UnreadableError(
                    path, "decompressed, " + too_large(size, limit).replace("has", "it has", 1)
                )
            pieces.append(piece)
            if not piece and not content and not member.eof:
                raise MalformedError(path, "is gzip data that is cut off")
        content = member.unused_data.lstrip(b"\0")  # padding, as on tapes
    return b"".join(pieces)
