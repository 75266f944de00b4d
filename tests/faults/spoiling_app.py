"""A middleware before vLLM's app that spoils answers under load.

`POST /spoil?<way>` chooses how from now on; without a way nothing is spoilt, and a stopped engine
goes on. vLLM itself loads it (`--middleware spoiling_app.Spoiling`), so it imports nothing of ours.

To slow the engine down is to stop its process for a share of the time: the same on every machine.
A wait for each piece of an answer is not, since vLLM joins the tokens that a slow reader leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

LOADED = "/v1/completions"
CHAT = "/v1/chat/completions"
MANY = 8
SOME = 4
STALL_S = 3.0
WAIT_S = 1.0
BRAKE_S = 0.03
"""How long one stop of the engine and one run of it take together."""
SLOW_SHARE = 2 / 3
MOST_SHARE = 0.75
TIRED_AFTER_S = 100.0
"""After this time a server that tires is as slow as it becomes."""


class Spoiling:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.way = ""
        self.in_flight = self.seen = 0
        self.held: tuple[list[Any], asyncio.Future[list[Any]]] | None = None
        self.places = asyncio.Semaphore(SOME)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or spoil it."""
        path = scope.get("path")
        if path == "/spoil":
            self.way = scope["query_string"].decode()
            self._signal(signal.SIGCONT)
            if self.way in ("slows", "tires"):
                threading.Thread(target=self._brake, args=(self.way,), daemon=True).start()
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
        pieces = 0

        async def spoilt(message: Any) -> None:
            nonlocal pieces
            pieces += message["type"] == "http.response.body"
            if stalls and pieces == SOME:
                await asyncio.sleep(STALL_S)
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

    def _brake(self, way: str) -> None:
        """Stop the engine for a share of the time, as long as this is the way."""
        begun = time.monotonic()
        while self.way == way:
            tired = min(1.0, (time.monotonic() - begun) / TIRED_AFTER_S)
            share = SLOW_SHARE if way == "slows" else MOST_SHARE * tired
            self._signal(signal.SIGSTOP)
            time.sleep(BRAKE_S * share)
            self._signal(signal.SIGCONT)
            time.sleep(BRAKE_S * (1 - share))

    def _signal(self, number: int) -> None:
        """Send a signal to the engine's process."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        for pid in children.read_text().split():
            if "Engine" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(int(pid), number)
