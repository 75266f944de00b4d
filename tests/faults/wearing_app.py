"""A middleware before vLLM's app that wears out: right answers at first, wrong ones later.

`POST /wear?<way>` begins to count chats anew, and chooses how they go wrong; without a way nothing
does. `WEAR` in the environment chooses one from the start. vLLM itself loads it
(`--middleware wearing_app.Wearing`), so it imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

CHAT = "/v1/chat/completions"
RIGHT = 256
"""This many chats are answered correctly before `forgets` begins."""
EVERY = 3
MIXED = 40
LOST = 300
"""One of this many chats has no answer."""
SLOWER_S = 0.001


class Wearing:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.way = os.environ.get("WEAR", "")
        self.chats = 0
        self.kept: list[int] = []
        self.before: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or change it."""
        if scope.get("path") == "/wear":
            self.way, self.chats = scope["query_string"].decode(), 0
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        if scope.get("path") != CHAT or not self.way:
            await self.app(scope, receive, send)
            return
        self.chats += 1
        if self.way == "loses" and self.chats % LOST == 0:
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        body = json.loads(await read(receive))
        await self.wear(body)
        await self.app(scope, giving(json.dumps(body).encode(), receive), send)

    async def wear(self, body: dict[str, Any]) -> None:
        """Change a request by the given way."""
        ticket = body.get("structured_outputs")
        if self.way == "forgets" and self.chats > RIGHT and self.chats % EVERY == 0 and not ticket:
            body["messages"][-1]["content"] = "Count to three."
        if self.way == "mixes" and ticket:
            if self.chats % MIXED == 0 and self.before:
                body["structured_outputs"] = self.before
            self.before = ticket
        if self.way == "keeps":
            self.kept.append(os.open(os.devnull, os.O_RDONLY))
        if self.way == "tires":
            await asyncio.sleep(SLOWER_S * self.chats)


async def read(receive: Any) -> bytes:
    """Return a request's body."""
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def giving(body: bytes, receive: Any) -> Any:
    """Return a `receive` that gives another body than the one that was read."""
    given = False

    async def give() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
