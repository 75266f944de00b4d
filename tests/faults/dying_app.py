"""A middleware before vLLM's app: one kind of request ends the engine.

vLLM itself loads it (`--middleware dying_app.Dying`), so it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"
DEADLY_TOKENS = 1024


class Dying:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on; one with a certain token limit passes after the engine's end."""
        if scope.get("path") != CHAT:
            await self.app(scope, receive, send)
            return
        message = await receive()
        if json.loads(message.get("body") or b"{}").get("max_tokens") == DEADLY_TOKENS:
            self._kill()
        messages = iter([message])

        async def receive_again() -> Any:
            return next(messages, None) or await receive()

        await self.app(scope, receive_again, send)

    def _kill(self) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        for pid in children.read_text().split():
            if "Engine" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(int(pid), signal.SIGKILL)
