"""Fetches JSON from the hosts of wheels and commits, within limits of size and time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx

from pytest_vllm_gates.bounded import limits, syntax
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 30.0
REDIRECTS = 5
MISSING = (403, 404)
"""The answers of object storage for a missing key; S3 answers 403 if listing is not allowed."""
PAGE_BYTES = limits.JSON_BYTES
TRIES = 2


class RefusedError(Exception):
    """The host answers with an error; `status` is its number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answers {status}")
        self.status = status


@contextlib.contextmanager
def client() -> Iterator[httpx.Client]:
    """Yield a client that several threads may use; the environment's proxies are used."""
    with httpx.Client(timeout=WAIT_S, follow_redirects=True, max_redirects=REDIRECTS) as made:
        yield made


def json(made: httpx.Client, url: str, *, advice: str) -> Any:
    """Return the JSON at an address.

    Raises `RefusedError` for an error answer, and `UserError`, ending with `advice`, if the host
    cannot be reached or the answer is too large or not JSON.
    """
    for last in range(1, TRIES + 1):
        try:
            return syntax.json_value(_read(made, url), unique=True, whole=True)
        except syntax.BadSyntaxError as error:
            raise _failed(url, f"not valid JSON: {error}", advice) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if last == TRIES:
                raise _failed(url, str(error) or type(error).__name__, advice) from error
    raise AssertionError  # the loop returns or raises


def size(made: httpx.Client, url: str) -> int | None:
    """Return the bytes of the file at an address; None if the host does not report them."""
    try:
        length = made.head(url).raise_for_status().headers.get("content-length", "")
    except httpx.HTTPError:
        return None
    return int(length) if length.isascii() and length.isdigit() else None


def _read(made: httpx.Client, url: str) -> bytes:
    with made.stream("GET", url) as reply:
        if reply.is_error:
            raise RefusedError(reply.status_code)
        if url.startswith("https:") and reply.url.scheme != "https":
            raise httpx.UnsupportedProtocol(
                f"it redirects to {reply.url.scheme}://{reply.url.host}"
            )
        content = bytearray()
        for piece in reply.iter_bytes():
            content += piece
            if len(content) > PAGE_BYTES:
                raise httpx.DecodingError(f"more than {limits.amount(PAGE_BYTES)}")
        return bytes(content)


def _failed(url: str, why: str, advice: str) -> UserError:
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return UserError(f"{shown} cannot be read: {why}\n{advice}")
