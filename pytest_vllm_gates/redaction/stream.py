"""Redacts a log while it is written: it comes in pieces, and a secret may span two pieces."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from pytest_vllm_gates.bounded.characters import printed
from pytest_vllm_gates.redaction.blocks import KeyBlock

if TYPE_CHECKING:
    from pytest_vllm_gates.redaction.redactor import Redactor

LONGEST_LINE = 2**16
"""Bytes that are kept back of an unfinished line."""
WORDS = 3


class Stream:
    """Redacts text as it is written, line by line: a secret may be split over two writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._rest = b""
        self._block = KeyBlock()

    def feed(self, data: bytes) -> bytes:
        """Add written bytes; return the bytes that can be passed on."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_LINE:
            # The longest possible secret is kept back: it may not be complete yet.
            data = self._clean(data)
            end = max(end, len(data) - LONGEST_LINE)
            self._rest = data[end:]
            return data[:end]
        self._rest = data[end:]
        return self._clean(data[:end])

    def idle(self) -> bytes:
        """Return the part of an unfinished line that can be passed on after some idle time.

        The last words are kept back: they may be the name of a secret that follows.
        """
        last_words = self._rest.rsplit(b" ", WORDS)[1:]
        end = len(self._rest) - len(b" ".join(last_words)) if last_words else 0
        data, self._rest = self._rest[:end], self._rest[end:]
        # The line continues, so the state of a private key must not change yet.
        return self._clean(data, self._block.copy())

    def end(self) -> bytes:
        """Return the rest."""
        data, self._rest = self._rest, b""
        return self._clean(data)

    def _clean(self, data: bytes, block: KeyBlock | None = None) -> bytes:
        return self._redactor.prompts.log(self._redactor.data(data, block or self._block))


class NobodyReadsError(BrokenPipeError):
    """The reader of the output has closed it."""


class CleanText(io.TextIOBase):
    """A text file whose lines are passed on to another file, without secrets."""

    def __init__(self, file: TextIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._rest = ""
        self._block = KeyBlock()

    def write(self, text: str) -> int:
        """Add a text; an unfinished last line waits. Raises `NobodyReadsError`."""
        lines, end, self._rest = (self._rest + printed(text)).rpartition("\n")
        if end:
            self._pass_on(self._redactor.text(lines + end, self._block))
        return len(text)

    def flush(self) -> None:
        """Pass on the complete lines. Raises `NobodyReadsError`."""
        self._pass_on("", flush=True)

    def isatty(self) -> bool:
        """Return whether the output is a terminal."""
        return self._file.isatty()

    def close(self) -> None:
        """Pass on the rest; the file stays open. Raises `NobodyReadsError`."""
        line, self._rest = self._rest, ""
        self._pass_on(self._redactor.text(line, self._block), flush=True)

    def _pass_on(self, text: str, *, flush: bool = False) -> None:
        try:
            self._file.write(text)
            if flush:
                self._file.flush()
        except BrokenPipeError as error:
            raise NobodyReadsError(*error.args) from error
