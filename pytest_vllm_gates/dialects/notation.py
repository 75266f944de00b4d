"""What the dialects have in common: the texts of a message, and what has no place in one."""

from __future__ import annotations

from typing import Any

SHOWN = 60


class NoPlace(Exception):  # noqa: N818 - a reason to leave a case out
    """A dialect has no place for what a request asks."""


def texts_of(content: Any) -> list[str]:
    """Return the texts of a message's content, a string or a list of parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    for part in content:
        if part.get("type") != "text":
            raise NoPlace(f"content parts of type {part.get('type')!r} are not written")
    return [part["text"] for part in content]


def text_of(content: Any) -> str:
    """Return all texts of a message's content as one."""
    return "".join(texts_of(content))


def shown(value: Any) -> str:
    """Return a value short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
