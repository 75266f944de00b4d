"""A middleware before vLLM's app that spoils answers under load.

`POST /spoil?<way>` chooses how from now on; without a way nothing is spoilt, and a stopped engine
goes on. vLLM itself loads it (`--middleware spoiling_app.Spoiling`), so it imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

LOADED = "/v1/completions"
CHAT = "/v1/chat/completions"
MANY = 8
SOME = 4
STALL_S = 3.0
WAIT_S = 1.0
TIRING_S = 0.0001
SLOW_S = 0.03


class Spoiling:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.way = ""
        self.in_flight = self.seen = self.since = 0
        self.held: tuple[list[Any], asyncio.Future[list[Any]]] | None = None
        self.places = asyncio.Semaphore(SOME)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or spoil it."""
        path = scope.get("path")
        if path == "/spoil":
            self.way, self.since = scope["query_string"].decode(), self.seen
            self._signal(signal.SIGCONT)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        elif path == LOADED:
            self.in_flight += 1
            self.seen += 1
            try:
                await self._loaded(scope, receive, send)
            finally:
                self.in_flight -= 1
        elif path == CHAT and self.way == "crosses" and self.in_flight >= SOME:
            await self._crossed(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _loaded(self, scope: Any, receive: Any, send: Any) -> None:
        if self.way == "dies" and self.in_flight >= MANY:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "stops" and self.in_flight >= MANY:
            self._signal(signal.SIGSTOP)
        if self.way == "halves":
            async with self.places:
                await self.app(scope, receive, send)
            return
        stalls = self.way == "stalls" and self.seen % 10 == 0
        drops = self.way == "drops"
        tired_s = TIRING_S * (self.seen - self.since) if self.way == "tires" else 0.0
        tired_s += SLOW_S if self.way == "slows" else 0.0
        pieces = 0

        async def spoilt(message: Any) -> None:
            nonlocal pieces
            pieces += message["type"] == "http.response.body"
            if stalls and pieces == SOME:
                await asyncio.sleep(STALL_S)
            if tired_s:
                await asyncio.sleep(tired_s)
            if not (drops and pieces == MANY):
                await send(message)

        await self.app(scope, receive, spoilt)

    async def _crossed(self, scope: Any, receive: Any, send: Any) -> None:
        """Swap this answer with that of a concurrent request."""
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, keep)
        if self.held:
            other_messages, other_future = self.held
            self.held = None
            other_future.set_result(messages)
        else:
            future = asyncio.get_running_loop().create_future()
            self.held = (messages, future)
            try:
                other_messages = await asyncio.wait_for(future, WAIT_S)
            except TimeoutError:
                other_messages, self.held = messages, None
        for message in other_messages:
            await send(message)

    def _signal(self, number: int) -> None:
        """Send a signal to the engine's process."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        for pid in children.read_text().split():
            if "Engine" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(int(pid), number)
