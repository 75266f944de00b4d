"""Characters that a person does not see, or that control a terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

PICTURES = 0x2400
"""The Unicode block whose n-th character pictures control character n."""
DELETE, DELETE_PICTURE = 0x7F, "\u2421"
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of characters without a shape; new emoji are in none of them."""
BLANK = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that are invisible."""
JOINERS = {"\u200c", "\u200d"}
"""Some languages and emoji use these inside words."""
DANGEROUS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that control a terminal: control codes, line separators, changes of direction."""
COLOURS = re.compile(r"(\x1b\[[\d;]{0,20}m)")
CONCEALED = re.compile(r"[\[;]0*8[;m]")
"""The colour that hides text."""
CLEARS = re.compile(r"\r\x1b\[2?K")
CONTROLS = re.compile(r"(\x1b\[[0-?]{0,20}[ -/]{0,4}[@-~]|\r)")
"""Colours and movements of the cursor, as in progress lines of pytest and its plugins."""


def hidden(text: str, *, sentence: bool = False) -> str:
    """Return the first invisible character of a text, as U+XXXX; else ''.

    A sentence may have spaces of any width, and joiners, which words of some languages need.
    """
    if text.isascii() and text.isprintable():
        return ""
    for character in text:
        category = unicodedata.category(character)
        wrong = category in INVISIBLE and not (sentence and character in JOINERS)
        spaces = category == "Zs" and character != " " and not sentence
        if wrong or spaces or character in BLANK:
            return f"U+{ord(character):04X}"
    return ""


def shown(text: str) -> str:
    """Return a text that is safe for a terminal: control characters are made visible.

    Line breaks, tabs and colours stay.
    """
    return _shown(text, COLOURS)


def printed(text: str) -> str:
    """Return a command's output: as `shown`, after a beginning that clears the line."""
    clears = CLEARS.match(text)
    start = clears.end() if clears else 0
    return text[:start] + shown(text[start:])


def shown_in(value: Any) -> Any:
    """Return a JSON value with every text in it as `shown`."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {key: shown_in(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shown_in(member) for member in value)
    return value


def written(text: str) -> str:
    """Return output of pytest and its plugins as `shown`, but with its cursor movements.

    Escape sequences for window titles, clipboards and the like are made visible.
    """
    return _shown(text, CONTROLS)


def _shown(text: str, kept: re.Pattern[str]) -> str:
    if DANGEROUS.search(text) is None:
        return text
    parts = kept.split(text.replace("\r\n", "\n"))
    return "".join(
        part if at % 2 and not CONCEALED.search(part) else DANGEROUS.sub(_picture, part)
        for at, part in enumerate(parts)
    )


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < ord(" "):
        return chr(PICTURES + code)
    return DELETE_PICTURE if code == DELETE else f"⟨U+{code:04X}⟩"
