"""Reads answers of any form: a part that differs from the API is `Malformed`, never a crash."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client.untyped import MISREADINGS, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 80
MOST_TOKENS = 2**27
"""More tokens than any context has."""


class Malformed(httpx.DecodingError, ValueError):  # noqa: N818 - a state of the server
    """A server's answer differs from the API's form; the text names the place."""


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Read an answer; raises `Malformed`, naming `what`, for a form that cannot be read."""
    try:
        yield
    except (Malformed, httpx.HTTPStatusError):
        raise
    except MISREADINGS as error:
        reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
        message = f"{what} is not as in the API: {reason[:300] or type(error).__name__}"
        raise Malformed(message) from error


def text(value: Any, where: str) -> str:
    """Return a field as text, '' for null; raises `Malformed` for another type."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"{where} is {_shown(value)}, and the API has text there")
    return value


def count(value: Any, where: str) -> int:
    """Return a field with a count; raises `Malformed` for another value."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        raise Malformed(
            f"{where} is {_shown(value)}, and the API has a count of 0 to {MOST_TOKENS:,} there"
        )
    return value


def token_ids(value: Any, where: str) -> list[int]:
    """Return a list of token ids; raises `Malformed` for anything else."""
    if not isinstance(value, list):
        raise Malformed(f"{where} is {_shown(value)}, and the API has a list there")
    return [count(token, f"{where}[{place}]") for place, token in enumerate(value)]


def _shown(value: Any) -> str:
    return f"{shown(value, SHOWN)} ({type(value).__name__})"
