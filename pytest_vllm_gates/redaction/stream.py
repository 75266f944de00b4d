"""Redacts a log while it is written: it comes in pieces, and a secret may span two of them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from pytest_vllm_gates.bounded.characters import printed
from pytest_vllm_gates.redaction.blocks import KeyBlock

if TYPE_CHECKING:
    from pytest_vllm_gates.redaction.redactor import Redactor

LONGEST_LINE = 2**16
"""Bytes that are held back of a line that does not end."""
WORDS = 3


class Stream:
    """Redacts text as it is written, line by line: a secret may be split over two writes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._rest = b""
        self._block = KeyBlock()

    def feed(self, data: bytes) -> bytes:
        """Take what was written; return what can be passed on."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_LINE:
            # What is longest is held back: a secret that is not whole yet may be in it.
            data = self._clean(data)
            end = max(end, len(data) - LONGEST_LINE)
            self._rest = data[end:]
            return data[:end]
        self._rest = data[end:]
        return self._clean(data[:end])

    def idle(self) -> bytes:
        """Return what can be passed on of a line that is not ended, after a while of silence.

        The last words stay: a secret may follow that is known by them alone.
        """
        last_words = self._rest.rsplit(b" ", WORDS)[1:]
        end = len(self._rest) - len(b" ".join(last_words)) if last_words else 0
        data, self._rest = self._rest[:end], self._rest[end:]
        # The line goes on: it is not over whether it is one of a private key.
        return self._clean(data, self._block.copy())

    def end(self) -> bytes:
        """Return what is left."""
        data, self._rest = self._rest, b""
        return self._clean(data)

    def _clean(self, data: bytes, block: KeyBlock | None = None) -> bytes:
        return self._redactor.prompts.log(self._redactor.data(data, block or self._block))


class NobodyReadsError(BrokenPipeError):
    """What is printed goes nowhere any more: whoever read it has read enough."""


class CleanText(io.TextIOBase):
    """What is printed goes on to a text file line by line, without secrets."""

    def __init__(self, file: TextIO, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._rest = ""
        self._block = KeyBlock()

    def write(self, text: str) -> int:
        """Take a text; its last line waits for its end. Raises `NobodyReadsError`."""
        lines, end, self._rest = (self._rest + printed(text)).rpartition("\n")
        if end:
            self._pass_on(self._redactor.text(lines + end, self._block))
        return len(text)

    def flush(self) -> None:
        """Pass on the lines that are whole. Raises `NobodyReadsError`."""
        self._pass_on("", flush=True)

    def isatty(self) -> bool:
        """Return whether a person reads it."""
        return self._file.isatty()

    def close(self) -> None:
        """Pass on what is left; the file stays open. Raises `NobodyReadsError`."""
        line, self._rest = self._rest, ""
        self._pass_on(self._redactor.text(line, self._block), flush=True)

    def _pass_on(self, text: str, *, flush: bool = False) -> None:
        try:
            self._file.write(text)
            if flush:
                self._file.flush()
        except BrokenPipeError as error:
            raise NobodyReadsError(*error.args) from error
