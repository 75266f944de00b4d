"""Characters that a person does not see, or that do something to a terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

PICTURES = 0x2400
"""The Unicode block whose n-th character pictures control character n."""
DELETE, DELETE_PICTURE = 0x7F, "\u2421"
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of what has no shape of its own; new emoji are in none of them."""
BLANK = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that look like nothing."""
JOINERS = {"\u200c", "\u200d"}
"""Words of some languages, and emoji, are written with these."""
DANGEROUS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What acts on a terminal: control characters, line separators, changes of direction."""
COLOURS = re.compile(r"(\x1b\[[\d;]{0,20}m)")
CONCEALED = re.compile(r"[\[;]0*8[;m]")
"""The colour that hides text."""
CLEARS = re.compile(r"\r\x1b\[2?K")
CONTROLS = re.compile(r"(\x1b\[[0-?]{0,20}[ -/]{0,4}[@-~]|\r)")
"""Colours and movements of the cursor, as progress lines of pytest and its plugins have them."""


def hidden(text: str, *, sentence: bool = False) -> str:
    """Return the first character of a text that a person does not see, as U+XXXX; else ''.

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
    """Return a text as a terminal may have it: what would act on it is made visible.

    Line breaks, tabs and colours stay.
    """
    return _shown(text, COLOURS)


def printed(text: str) -> str:
    """Return what a command prints: as `shown`, after what clears the line at its beginning."""
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
    """Return output of pytest and its plugins, whose cursor movements stay, otherwise as `shown`.

    Titles of windows, clipboards and the like are made visible.
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
