"""A server's log: its progress while it grows, and the earliest error in it."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from typing import TYPE_CHECKING

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import UnreadableError
from pytest_vllm_gates.server import log_bytes
from pytest_vllm_gates.server.log_line import free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ERROR = re.compile(
    r"(?:^|[\s:'(])(?:[A-Za-z_.]*(?:Error|Exception|Interrupt)\b[:(]|error: |Fatal |fatal error)"
    r"|^cannot start |Segmentation fault|Killed"
)
# These lines report that something else went wrong; the cause is above them.
WRAPPER = re.compile(
    r"Engine core initialization failed|WorkerProc (?:failed to start|initialization failed)"
    r"|EngineDeadError|EngineCore (?:failed to start|encountered)|DeprecationWarning|FutureWarning"
)
TAIL_LINES = 12
BLOCK_BYTES = 2**20
SEARCHED_BYTES = 2**34
READ_BYTES = 16 * 2**20
"""Bytes of a log that are read at once; a log that is only searched is read in blocks."""
AROUND = 2


class LogWatch:
    """Reports how long a growing log has been silent, and its last line."""

    def __init__(self, path: Path, on_text: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._on_text = on_text
        self._size = 0
        self._grew = time.monotonic()
        self.last_line = ""

    def silent_s(self) -> float:
        """Seconds since the log last grew."""
        size = _size(self._path)
        if size != self._size:
            begin = min(self._size, size)
            fresh = read_from(self._path, begin)
            self._size = min(size, begin + READ_BYTES)  # the rest is read the next time
            self._grew = time.monotonic()
            if self._on_text:
                self._on_text(fresh)
            lines = [line for line in fresh.replace("\r", "\n").splitlines() if line.strip()]
            if lines:
                self.last_line = without_prefix(lines[-1])
        return time.monotonic() - self._grew


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it was removed, or its folder was replaced
        return 0


def read_from(path: Path, offset: int = 0) -> str:
    """Return the log's text from a byte offset, at most `READ_BYTES`, wrong bytes replaced.

    A log that was removed while the server runs is empty.
    """
    try:
        with path.open("rb") as log:
            log.seek(offset)
            return log.read(READ_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def without_prefix(line: str) -> str:
    """Return a log line without process, level and time prefixes."""
    return free(line).text


def earliest_error(path: Path) -> tuple[str, ...]:
    """Return the first error of a log with its neighbours, or its last lines if it has none.

    Wrappers ("Engine core initialization failed") are skipped: the cause is above them. Lines that
    several ranks repeat are given once.
    """
    if not path.exists():
        return ()
    text = read_from(path)
    if (size := _size(path)) > READ_BYTES:  # its beginning, and its end
        text += "\n" + read_from(path, max(READ_BYTES, size - READ_BYTES))
    lines = list(dict.fromkeys(without_prefix(line) for line in text.splitlines()))
    lines = [line for line in lines if line.strip()]
    for position, line in enumerate(lines):
        if ERROR.search(line) and not WRAPPER.search(line):
            return tuple(lines[max(0, position - AROUND) : position + 1 + AROUND])
    return tuple(lines[-TAIL_LINES:])


def blocks(path: Path) -> Iterator[bytes]:
    """Yield a log in blocks of whole lines, as bytes of UTF-8; `-` is the standard input.

    Raises `UserError` if it is not a file or not text, and after `SEARCHED_BYTES`.
    """
    with contextlib.ExitStack() as stack:
        limit, size = bounded_read.most(SEARCHED_BYTES), 0
        if str(path) == "-":
            source = log_bytes.text_of(sys.stdin.buffer, path)
        else:
            file = stack.enter_context(bounded_read.opened(path))
            if (known := _size(path)) > limit:
                raise UnreadableError(path, bounded_read.too_large(known, limit))
            source = log_bytes.text_of(file, path)
        incomplete = b""
        while chunk := source.read(BLOCK_BYTES):
            size += len(chunk)
            if size > limit:
                raise UnreadableError(path, bounded_read.too_large(size, limit))
            chunk = incomplete + chunk
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            # A line that never ends is cut, so that memory stays bounded.
            if not end and len(chunk) >= BLOCK_BYTES:
                end = len(chunk)
            incomplete = chunk[end:]
            if end:
                yield chunk[:end]
        if incomplete:
            yield incomplete
