"""Python values inside lines of a log, as `repr` writes them. They are read, never evaluated."""

from __future__ import annotations

import ast
import re
from typing import Any

DEPTH = 100
CHARACTERS = 16 * 2**20
BRACKETS = {"{": "}", "[": "]", "(": ")"}
ENDS = (*BRACKETS.values(), ",", "\n", "")
# A text, a bracket, the end of an item or of the line; a quote alone begins a text that is cut off.
PART = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|['"{}()\[\],\n]|\Z""")


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the literal that begins at a place of a text, and where it ends.

    Raises `ValueError` where there is none, where it is cut off, and where it is too deep.
    """
    end = _end(text, at)
    try:
        return ast.literal_eval(text[at:end].strip()), end
    except (SyntaxError, ValueError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"no Python literal: {type(error).__name__}") from error


def arguments_at(text: str, at: int) -> dict[str, Any]:
    """Return the keywords of a call like `SamplingParams(n=1, stop=[])` that are literals."""
    end = _end(text, text.index("(", at))
    try:
        call = ast.parse(text[at:end].strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"no call: {type(error).__name__}") from error
    found: dict[str, Any] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        try:
            found[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError):
            continue
    return found


def _end(text: str, at: int) -> int:
    """Return where the value ends that begins at a place: its last bracket or quote is closed."""
    open_: list[str] = []
    begun = at
    for found in PART.finditer(text, at):
        part, at = found[0], found.end()
        if part in ("'", '"') or at - begun > CHARACTERS or len(open_) > DEPTH:
            break
        if part in BRACKETS:
            open_.append(BRACKETS[part])
            continue
        if part in ENDS and not open_:
            return found.start()
        if open_ and part == open_[-1]:
            open_.pop()
        if not open_:
            return at
    raise ValueError("it is cut off, too long or too deep")
