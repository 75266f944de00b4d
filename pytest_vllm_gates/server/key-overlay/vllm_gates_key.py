"""Requires the server's key on every route but `/health`; vLLM's flag `--middleware` adds it.

vLLM's own check of `VLLM_API_KEY` covers the paths below `/v1`, `/v2`, `/inference` and `/cohere`
(https://docs.vllm.ai/en/stable/usage/security/). A class of `--middleware` wraps all others that
vLLM adds. Requests with the key pass unchanged: no part of an answer runs through here.

Standard library only: it runs in the lane's Python.
"""

# ruff: noqa: INP001 - the folder is on the import path of the server, and is not a package

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Message, Receive, Send], Awaitable[None]]

VARIABLE = "VLLM_API_KEY"
OPEN = "/health"
BODY = b'{"error":"Unauthorized"}'  # as vLLM's own refusal
HEAD = [(b"content-length", str(len(BODY)).encode()), (b"content-type", b"application/json")]
POLICY_VIOLATION = 1008  # RFC 6455, 7.4.1


class DemandKey:
    """ASGI middleware: answers 401 to a request without the key, whatever its path and method."""

    def __init__(self, app: Application) -> None:
        """Raises `RuntimeError` if the server has no key, so that it does not boot open."""
        key = os.environ.get(VARIABLE, "")
        if not key:
            raise RuntimeError(f"{VARIABLE} is not set: every request would be refused")
        self._app = app
        self._digest = hashlib.sha256(key.encode()).digest()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on or refuse a request."""
        kind = scope["type"]
        if kind == "http" and scope["path"] != OPEN and not self._known(scope["headers"]):
            await send({"type": "http.response.start", "status": 401, "headers": HEAD})
            await send({"type": "http.response.body", "body": BODY})
        elif kind == "websocket" and not self._known(scope["headers"]):
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            await self._app(scope, receive, send)

    def _known(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Return whether the first Authorization header has the key; names are in lower case."""
        value = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, key = value.partition(b" ")
        digest = hashlib.sha256(key).digest()
        return scheme.lower() == b"bearer" and hmac.compare_digest(digest, self._digest)
