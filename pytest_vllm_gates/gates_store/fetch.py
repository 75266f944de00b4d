"""Fetches the archive of a store from its URL, within limits of size and time."""

from __future__ import annotations

import atexit
import shlex
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import httpx2 as httpx

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store.archive import ARCHIVE_BYTES

if TYPE_CHECKING:
    from typing import IO

SCHEMES = ("http", "https")
WAIT_S = 30.0
FETCH_S = 600.0
REDIRECTS = 5


def is_url(source: str) -> bool:
    """Return whether a source is the URL of an archive, and not a path."""
    return urlsplit(source).scheme.lower() in SCHEMES if "://" in source else False


def without_login(url: str) -> str:
    """Return a URL for display: without a login, and without a signature."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def archive(url: str) -> Path:
    """Fetch an archive into a temporary file, which is removed when the process ends.

    The environment's proxies are used. Raises `UserError` if it cannot be fetched, for a redirect
    from https to plain http, and for more bytes or seconds than the limits.
    """
    shown = without_login(url)
    file = tempfile.NamedTemporaryFile(prefix="vllm-gates-store-", delete=False)  # noqa: SIM115
    atexit.register(lambda: Path(file.name).unlink(missing_ok=True))
    with (
        file,
        httpx.Client(
            timeout=WAIT_S,
            follow_redirects=True,
            max_redirects=REDIRECTS,
            event_hooks={"request": [_only_tls] if url.lower().startswith("https:") else []},
        ) as client,
    ):
        try:
            with client.stream("GET", url) as reply:
                reply.raise_for_status()
                _save(reply, file, shown)
        except httpx.HTTPStatusError as error:
            raise _failed(shown, f"it answers {error.response.status_code}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _failed(shown, str(error) or type(error).__name__) from error
    return Path(file.name)


def _save(reply: httpx.Response, file: IO[bytes], shown: str) -> None:
    limit = bounded_read.most(ARCHIVE_BYTES)
    deadline = time.monotonic() + FETCH_S
    size = 0
    for piece in reply.iter_bytes():
        size += len(piece)
        if size > limit:
            raise UserError(f"{shown}: {bounded_read.too_large(size, limit)}")
        if time.monotonic() > deadline:
            raise _failed(shown, f"it has not ended after {FETCH_S:.0f} s")
        file.write(piece)


def _only_tls(request: httpx.Request) -> None:
    if request.url.scheme != "https":
        raise httpx.UnsupportedProtocol(
            f"it redirects from https to {request.url.scheme}://{request.url.host}"
        )


def _failed(shown: str, why: str) -> UserError:
    return UserError(
        f"the store {shown} cannot be fetched: {why}\n"
        f"fetch it yourself: curl -fLo golden.tar.gz {shlex.quote(shown)}, and name the file: "
        "--gates-store golden.tar.gz"
    )
