"""Reads the here-document of a command: the text that a shell passes to its standard input."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_vllm_gates.errors import UserError

OPERATOR = re.compile(
    r"<<(?P<tabs>-?)[ \t]*"
    r"(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"\n]+)\"|\\(?P<escaped>[\w.-]+)|(?P<plain>[\w.-]+))"
)
TABS = re.compile(r"^\t+", re.MULTILINE)


@dataclass(frozen=True)
class HereDocument:
    """A here-document, and its place in the command."""

    text: str
    expands: bool
    """Whether the shell expands `$NAME`, `$(…)` and backticks."""
    end: int
    """The end of its operator in the command."""
    below: str
    """The text after its last line."""


def read(command: str, at: int, below: str) -> HereDocument:
    """Return the here-document whose operator `<<` is at `at`; `below` follows the command.

    Raises `UserError` if it has no end.
    """
    operator = OPERATOR.match(command, at)
    if operator is None:
        raise UserError(
            "the here-document (<<) does not name its last line: write <<'EOF', the body, and a "
            "line EOF"
        )
    name = operator["single"] or operator["double"] or operator["escaped"] or operator["plain"]
    tabs = r"\t*" if operator["tabs"] else ""
    # The command's own line break is the first character.
    last = re.compile(rf"\n{tabs}{re.escape(name)}\r?(?=\n|\Z)").search(below)
    if last is None:
        raise UserError(f"the here-document has no line {name!r} at its end: is it cut off?")
    text = below[1 : last.start() + 1]
    return HereDocument(
        TABS.sub("", text) if tabs else text,
        operator["plain"] is not None,
        operator.end(),
        below[last.end() :],
    )
