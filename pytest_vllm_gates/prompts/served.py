"""The prompts a server makes of chat requests, by each of the ways it tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

Served = tuple[int, ...] | Refused
"""The token ids of a prompt, or the server's refusal to make one."""

ONE_TOKEN = {"max_tokens": 1, "return_token_ids": True}


def by_tokenize(endpoint: Endpoint, body: Mapping[str, Any]) -> Served:
    """Return the prompt that `/tokenize` tells; raises `httpx.HTTPStatusError` when it breaks."""
    return _served(http.post(endpoint, http.TOKENIZE, body), "tokens")


def every(endpoint: Endpoint, body: Mapping[str, Any], *, chats: bool) -> dict[str, Served]:
    """Return the prompt by the name of the way the server was asked.

    `/tokenize` tells most of every server's. Chats are rendered as the chat API does it where the
    server tells that, and with `chats` one is asked for a token and tells what it was given; both
    only where the prompt leaves room for an answer.
    """
    found: dict[str, Served] = {}
    room = 0
    told = _known_to_tokenize(body)
    if told:
        reply = http.post(endpoint, http.TOKENIZE, body)
        found[http.TOKENIZE] = _served(reply, "tokens")
        if reply.is_success:
            room = reply.json().get("max_model_len", 0) - len(reply.json()["tokens"])
    if told and room <= 0:
        return found
    reply = http.post(endpoint, http.RENDER, body)
    if reply.status_code not in http.HIDDEN:
        found["the chat API"] = _served(reply, "token_ids")
    if chats:
        reply = http.post(endpoint, http.CHAT, {**body, **ONE_TOKEN})
        if not reply.is_success or reply.json().get("prompt_token_ids"):
            found["a chat"] = _served(reply, "prompt_token_ids")
    return found


def _known_to_tokenize(body: Mapping[str, Any]) -> bool:
    """Return whether `/tokenize` reads all of a request: no effort, no reasoning's old name."""
    old = any("reasoning_content" in message for message in body["messages"])
    return not old and "reasoning_effort" not in body


def _served(reply: httpx.Response, key: str) -> Served:
    if reply.status_code == httpx.codes.BAD_REQUEST:
        return Refused(reply.text[:300])
    return tuple(reply.raise_for_status().json()[key])
