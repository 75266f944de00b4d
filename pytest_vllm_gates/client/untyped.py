"""Reads values of an answer that may be of any type: a value of another type reads as absent.

The checks of types report such a value. All other checks continue with the readable values.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MISREADINGS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""The exceptions of reading a value of an unexpected form."""
SHOWN = 60


def record(value: Any) -> Mapping[str, Any]:
    """Return a JSON object unchanged, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def records(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects of an array, none for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return a string unchanged, an empty one for any other value."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> int:
    """Return an integer unchanged, 0 for any other value; `true` is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def index_key(index: Any) -> tuple[bool, int, str]:
    """Return the sort key of an index of any JSON type: numbers come first."""
    text = json.dumps(index)
    is_number = text.isdecimal()
    return not is_number, len(text) if is_number else 0, text


def shown(value: Any, characters: int = SHOWN) -> str:
    """Return a value as Python writes it, short enough for a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of 5,000 digits, or thousands of brackets
        text = "a value too large to show"
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
