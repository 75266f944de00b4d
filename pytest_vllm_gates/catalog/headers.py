"""The request headers of a lane: the allowed ones, and the variables in their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token (RFC 9110, section 5.6.2)."""
VALUE = re.compile(r"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")
"""Visible characters, with blanks only between them (RFC 9110, section 5.5)."""
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
AUTHORIZATION, HOST = "Authorization", "Host"
SPELLED = {name.lower(): name for name in (AUTHORIZATION, HOST)}
"""Headers that clients set as well; a lane's replace them."""
OURS = frozenset(
    {
        "accept-encoding", "connection", "content-encoding", "content-length", "content-type",
        "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "x-request-id",
    }
)  # fmt: skip
"""Headers that the client sets: they frame a request, or identify it."""


def faults(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of a lane's headers, without their values."""
    seen: dict[str, str] = {}
    for name, value in headers.items():
        if not NAME.fullmatch(name):
            yield f"headers: {name!r} is not the name of a header (letters, digits and -)"
        elif name.lower() in OURS:
            yield f"headers: {name} is set by the client itself; leave it out"
        elif before := seen.get(name.lower()):
            yield f"headers: {before} and {name} are the same header; keep one"
        if not VALUE.fullmatch(value):
            yield f"headers: the value of {name} has to be one line of visible characters"
        seen[name.lower()] = name


def variables(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each header's name with each variable that its value contains as `${NAME}`."""
    for name, value in headers.items():
        for match in VARIABLE.finditer(value):
            yield name, match[1]


def expanded(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the variables in their values replaced.

    Raises `KeyError` for a variable that is not set.
    """
    return {
        SPELLED.get(name.lower(), name): VARIABLE.sub(lambda match: environment[match[1]], value)
        for name, value in headers.items()
    }


def has(headers: Iterable[str], name: str) -> bool:
    """Return whether a header of this name is among these, in any case of letters."""
    return name.lower() in {header.lower() for header in headers}
