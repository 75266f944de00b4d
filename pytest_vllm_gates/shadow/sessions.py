"""HTTP clients that send and return every byte as it is, and time answers from their requests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from types import SimpleNamespace
    from typing import Any

LINE_BYTES = 64 * 2**10
"""Of a request line and of a header, in either direction."""


class AnswerClock:
    """Tells how long an answer takes; hand it to a request as its `trace_request_ctx`.

    It runs from the last part of the request that was sent: what it takes to open a connection, and
    to read a body from a client, is no time of the server's.
    """

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    def restart(self) -> None:
        """Begin anew: a part of the request goes out."""
        self._since_s = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._since_s


def plain_session(
    *,
    keepalive_timeout: float | None = None,
    force_close: bool = False,
    total_s: float | None = None,
) -> aiohttp.ClientSession:
    """Return a client that adds no header and no cookie. Call it where the loop runs.

    `total_s` is how long one answer may take; None for as long as it takes.
    """
    connector = (
        aiohttp.TCPConnector(limit=0, force_close=True)
        if force_close
        else aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive_timeout)
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=None, sock_read=None),
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
        trace_configs=[_timed()],
    )


def _timed() -> aiohttp.TraceConfig:
    """Return what restarts the clock of a request that has one."""

    async def sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        clock = context.trace_request_ctx
        if isinstance(clock, AnswerClock):
            clock.restart()

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(sent)
    config.on_request_chunk_sent.append(sent)
    return config
