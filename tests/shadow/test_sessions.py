"""The time of an answer is measured from the last part of its request on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from servers import running

from pytest_vllm_gates.shadow.sessions import AnswerClock, plain_session
from shadow.shadow_servers import CHAT, Chats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAUSE_S = 1.0
BODY = b'{"model": "m", "messages": []}'


async def slowly() -> AsyncIterator[bytes]:
    """Send the body in two parts, as a client with a slow line does."""
    yield BODY[:10]
    await asyncio.sleep(PAUSE_S)
    yield BODY[10:]


def slow_connections() -> aiohttp.TraceConfig:
    """Return a connector that makes every connection slow."""

    async def wait(*_: object) -> None:
        await asyncio.sleep(PAUSE_S)

    config = aiohttp.TraceConfig()
    config.on_connection_create_start.append(wait)
    config.freeze()
    return config


async def asked(url: str, *, body_is_slow: bool = False, line_is_slow: bool = False) -> float:
    """Send one request; return the clock's time after the answer."""
    clock = AnswerClock()
    session = plain_session()
    if line_is_slow:
        session.trace_configs.append(slow_connections())
    headers = {"Content-Type": "application/json", "Content-Length": str(len(BODY))}
    data = slowly() if body_is_slow else BODY
    begun_s = asyncio.get_running_loop().time()
    try:
        async with session.post(
            url + CHAT, data=data, headers=headers, trace_request_ctx=clock
        ) as reply:
            await reply.read()
            seconds = clock.seconds
    finally:
        await session.close()
    if body_is_slow or line_is_slow:
        assert asyncio.get_running_loop().time() - begun_s > PAUSE_S
    return seconds


def test_a_slow_upload_is_not_counted() -> None:
    with running(Chats()) as server:
        assert asyncio.run(asked(server.url, body_is_slow=True)) < PAUSE_S


def test_a_slow_connection_is_not_counted() -> None:
    with running(Chats()) as server:
        assert asyncio.run(asked(server.url, line_is_slow=True)) < PAUSE_S


def test_a_slow_answer_is_counted() -> None:
    with running(Chats("slow")) as server:
        assert asyncio.run(asked(server.url)) > 0.3
