"""Reads the here-document of a command: the text that a shell gives it as its standard input."""

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
    """A here-document, and what is around it."""

    text: str
    expands: bool
    """Whether the shell puts in values for `$NAME`, `$(…)` and backticks."""
    end: int
    """Where its operator ends in the command."""
    below: str
    """What follows its last line."""


def read(command: str, at: int, below: str) -> HereDocument:
    """Return the here-document whose operator `<<` is at `at`; `below` follows the command.

    Raises `UserError` for one without an end.
    """
    operator = OPERATOR.match(command, at)
    if operator is None:
        raise UserError(
            "the here-document (<<) names no line that ends it: write <<'EOF', the body, and a "
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
