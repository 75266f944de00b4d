"""Finds private keys of several lines (PEM, PGP, PuTTY), also if lines come one by one.

A line of such a block ends with a long word of base64, whatever precedes it: vLLM and container
runtimes add names and times there. Standard library only.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.redaction.spans import Span

ANCHORS = ("PRIVATE KEY", "PuTTY-User-Key-File-")
MOST_LINES = 1000
NO_BODY = -1
_BEGIN = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    r"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|PuTTY-User-Key-File-\d: [^\r\n]{1,60}"
)
_END = re.compile(r"-----END |---- END |Private-MAC:")
_BODY = re.compile(r"(?:\\+[nr]|[ \t])*+((?:[A-Za-z0-9+/=\\ \t:,.]|-(?!---))*+)")
_END_OF_KEY = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY")
_BODY_CHARACTERS = string.ascii_letters + string.digits + "+/=\\"
_LINE = re.compile(r"[^\r\n]+")
LONG = 16
_LONG = re.compile(rf"[A-Za-z0-9+/=]{{{LONG}}}")
_SHORT = re.compile(r"(?:.{4})+|=.{4}")
# The last word of a line, possibly in quotes and with an escaped line end.
_LAST = re.compile(r"""(?:^|[\s"'`|:>])([A-Za-z0-9+/=]+)(?:\\+[nr])*["'`,\])]*\s*$""")
_HEADER = re.compile(
    r"\b(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Public-Lines|Private-Lines|Hash|Charset|"
    r"Key-Derivation|Argon2-[A-Za-z]+|Subject): "
)
_LINE_AT_MOST = 2000


@dataclass
class KeyBlock:
    """Tracks whether the current line is in a private key."""

    lines: int = 0
    """Lines that may still belong to the key; 0 outside a key."""
    words: int = NO_BODY
    """Words before the base64 on the previous line; `NO_BODY` if it had none."""

    def copy(self) -> KeyBlock:
        """Return a copy for looking ahead."""
        return KeyBlock(self.lines, self.words)

    def follow(self, text: str) -> None:
        """Update the state with some lines."""
        for _ in self.spans(text):
            pass

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the places of private keys' lines in a text, and update the state."""
        if not self.lines and not any(anchor in text for anchor in ANCHORS):
            return
        for match in _LINE.finditer(text):
            for begin, end in self._line(match[0]):
                yield match.start() + begin, match.start() + end

    def _line(self, line: str) -> Iterator[Span]:
        begins = False
        for opening in _BEGIN.finditer(line):
            begins = True
            body = _BODY.match(line, opening.end())
            if body and _LONG.search(body[1]):
                yield body.span(1)
            closed = body and _END.match(line, body.end())
            self.lines, self.words = 0 if closed else MOST_LINES, NO_BODY
        if self.lines and not begins:
            yield from self._inside(line)
            return
        # A key whose beginning was cut off, for example in a long value that pytest prints.
        for closing in _END_OF_KEY.finditer(line):
            begin = len(line[: closing.start()].rstrip(_BODY_CHARACTERS))
            if closing.start() - begin > 1:
                yield begin, closing.start()

    def _inside(self, line: str) -> Iterator[Span]:
        self.lines -= 1
        closing = _END.search(line)
        head = line[: closing.start()] if closing else line
        shift = max(len(head) - _LINE_AT_MOST, 0)
        last, header = _LAST.search(head[shift:]), _HEADER.search(head)
        long = last is not None and len(last[1]) >= LONG
        words = len(head[: shift + last.start(1)].split()) if last else NO_BODY
        # The last line may be short: a valid length of base64, after the same number of words.
        short = last is not None and words == self.words and _SHORT.fullmatch(last[1])
        if last and (long or short):
            yield shift + last.start(1), shift + last.end(1)
            self.words = words if long else NO_BODY
        elif not header and head.strip():
            self.lines = 0
        if closing:
            self.lines, self.words = 0, NO_BODY
