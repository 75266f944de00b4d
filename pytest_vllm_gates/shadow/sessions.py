"""HTTP clients and servers that pass every byte unchanged; answers are timed from requests."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from types import SimpleNamespace
    from typing import Any

LINE_BYTES = 64 * 2**10
"""The size limit of a request line and of a header, in either direction."""


class AnswerClock:
    """Measures how long an answer takes; pass it to a request as its `trace_request_ctx`.

    It runs from the last part of the request that was sent: the time to open a connection and to
    read a body from a client is not counted as the server's.
    """

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    def restart(self) -> None:
        """Restart: a part of the request is sent."""
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
    """Return a client that adds no header and no cookie. Call it inside the running loop.

    `total_s` limits the time of one answer; None for no limit.
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
    """Return the hooks that restart the clock of a request that has one."""

    async def sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        clock = context.trace_request_ctx
        if isinstance(clock, AnswerClock):
            clock.restart()

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(sent)
    config.on_request_chunk_sent.append(sent)
    return config


async def listen(
    application: web.Application,
    address: tuple[str, int],
    runners: list[web.AppRunner],
    drain_s: float,
) -> str:
    """Serve an application; return its URL. Its runner joins `runners`, which the caller cleans up.

    Requests in progress then have `drain_s`. Raises `UserError` if the port cannot be opened.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=drain_s,
        handler_cancellation=True,  # a client that hangs up ends the work for its request
        logger=_logger(),
        auto_decompress=False,
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
    )
    await runner.setup()
    runners.append(runner)
    host, port = address
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}\n"
            f"find the process that uses it: ss -ltnp 'sport = :{port}'"
        ) from error
    bound_host, bound_port = runner.addresses[0][:2]
    shown = f"[{bound_host}]" if ":" in bound_host else bound_host
    return f"http://{shown}:{bound_port}"


class _WithoutRequests(logging.Formatter):
    """Reports failures without the request: errors quote malformed ones, with keys."""

    def format(self, record: logging.LogRecord) -> str:
        kind = record.exc_info[0] if record.exc_info else None
        return f"vllm-gates shadow: a request failed: {kind.__name__ if kind else record.levelname}"


def _logger() -> logging.Logger:
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutRequests())
    logger.handlers[:] = [handler]
    return logger
