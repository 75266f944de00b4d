"""A middleware before vLLM's app that spoils the answers after a sleep or a pause.

`CYCLE` in the environment chooses how: `forgets` answers another question once the server was
woken or resumed, `lies` reports that it does not sleep and is not paused, `cuts` ends long
streams after their first events as if they were whole, `loses` answers 503 to `/health` while it
sleeps, `tires` answers 500 to every fifth chat once it has answered forty. vLLM itself loads it
(`--middleware cycling_app.Cycling`), so it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
from typing import Any

from wearing_app import giving, read  # type: ignore[import-not-found]  # beside this file

CHAT = "/v1/chat/completions"
GOES_ON = ("/wake_up", "/resume")
HELD = ("/sleep", "/pause")
STATES = {"/is_sleeping": "is_sleeping", "/is_paused": "is_paused"}
TIRED_AFTER, TIRED_EVERY = 40, 5
CUT_AFTER = 4
"""Events of a stream that is cut: as many as the gate waits for before it stops the server."""


class Cycling:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.way = os.environ.get("CYCLE", "")
        self.was_held = self.held = False
        self.chats = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or spoil it."""
        path = scope.get("path")
        if path in GOES_ON:
            self.was_held, self.held = True, False
        self.held = self.held or path in HELD
        self.chats += path == CHAT
        if self.way == "lies" and path in STATES:
            await answer(send, 200, json.dumps({STATES[path]: False}).encode())
        elif self.way == "tires" and path == CHAT and self.is_tired():
            await answer(send, 500, b'{"error": {"message": "tired"}}')
        elif self.way == "loses" and path == "/health" and self.held:
            await answer(send, 503, b"")
        elif self.way == "forgets" and path == CHAT and self.was_held:
            body = json.loads(await read(receive))
            body["messages"][-1]["content"] = "Count to three."
            await self.app(scope, giving(json.dumps(body).encode(), receive), send)
        elif self.way == "cuts" and path == CHAT:
            text = await read(receive)
            long = json.loads(text).get("ignore_eos")
            await self.app(scope, giving(text, receive), cutting(send) if long else send)
        else:
            await self.app(scope, receive, send)

    def is_tired(self) -> bool:
        """Return whether this chat is one that is not answered."""
        return self.chats > TIRED_AFTER and self.chats % TIRED_EVERY == 0


def cutting(send: Any) -> Any:
    """Return a `send` that ends a stream with one of its first events, and drops the rest."""
    events = 0

    async def cut(message: Any) -> None:
        nonlocal events
        if events >= CUT_AFTER:
            return
        events += bool(message["type"] == "http.response.body" and message.get("more_body"))
        await send({**message, "more_body": False} if events == CUT_AFTER else message)

    return cut


async def answer(send: Any, status: int, body: bytes) -> None:
    """Answer a request in the app's place."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
