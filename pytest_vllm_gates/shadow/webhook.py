"""Sends the document to a webhook when the answer changes, and retries if that fails."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

TRIES = 6
FIRST_WAIT_S = 1.0
"""Before the second try; each later wait is twice as long."""
ANSWER_S = 10.0
LEAST_ERROR = 400
MOST_RETRIED = 500
TOO_MANY = 429


class Webhook:
    """Sends documents one after the other, in their order."""

    def __init__(self, url: str, *, tries: int = TRIES, first_wait_s: float = FIRST_WAIT_S) -> None:
        self._url = url
        self._tries = tries
        self._first_wait_s = first_wait_s
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._last = ""

    async def changed(
        self, document: Callable[[], Awaitable[dict[str, Any]]], promotion: str
    ) -> None:
        """Send the document if its answer differs from the last one."""
        if promotion != self._last:
            self._last = promotion
            self._queue.put_nowait(await document())
            self._task = self._task or asyncio.get_running_loop().create_task(self._run())

    async def close(self, seconds: float) -> None:
        """Wait so long for documents that are not sent yet, then drop them."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), seconds)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                document = await self._queue.get()
                try:
                    await self._send(session, document)
                finally:
                    self._queue.task_done()

    async def _send(self, session: aiohttp.ClientSession, document: dict[str, Any]) -> None:
        wait_s, why = self._first_wait_s, ""
        for number in range(1, self._tries + 1):
            try:
                async with session.post(self._url, json=document) as reply:
                    if reply.status < LEAST_ERROR:
                        return
                    why = f"status {reply.status}"
                    if reply.status < MOST_RETRIED and reply.status != TOO_MANY:
                        break
            except (aiohttp.ClientError, TimeoutError) as error:
                why = f"{type(error).__name__}: {error}"
            if number < self._tries:
                await asyncio.sleep(wait_s)
                wait_s *= 2
        print(f"the webhook got no {document['promotion']}: {why}", file=sys.stderr)
