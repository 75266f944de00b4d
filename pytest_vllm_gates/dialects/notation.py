"""Common parts of the dialects: a message's texts, and the error for parts without a place."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.client.answer import Usage
from pytest_vllm_gates.client.untyped import shown


class NoPlace(Exception):  # noqa: N818 - a reason to leave a case out
    """A dialect has no place for a part of a request."""


def texts_of(content: Any) -> list[str]:
    """Return the texts of a message's content, a string or a list of parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    for part in content:
        if part.get("type") != "text":
            raise NoPlace(f"content parts of type {part.get('type')!r} are not supported")
    return [part["text"] for part in content]


def text_of(content: Any) -> str:
    """Return all texts of a message's content as one."""
    return "".join(texts_of(content))


def text(value: Any) -> str:
    """Return a field as text, '' for null; raises `ValueError` for another type."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a text")  # noqa: TRY004 - a misreading, as others
    return value


def usage(record: Any, given: tuple[str, ...], made: str) -> Usage | None:
    """Return the tokens that `given` and `made` count; None without a count.

    Raises `ValueError` for an invalid count.
    """
    if not record:
        return None
    counts = [record[given[0]], *(record.get(name) or 0 for name in given[1:]), record[made]]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError(f"{shown(record)} is not a token count")
    return Usage(sum(counts[:-1]), counts[-1])
