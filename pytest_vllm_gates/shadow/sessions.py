"""HTTP clients that send and return every byte as it is."""

from __future__ import annotations

import aiohttp

LINE_BYTES = 64 * 2**10
"""Of a request line and of a header, in either direction."""


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
    )
