"""The prompts a server makes of chat requests, by each of the ways it tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.drive import http
from pytest_vllm_gates.facts.rendering import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.facts.launch import Endpoint

Served = tuple[int, ...] | Refused
"""The token ids of a prompt, or the server's refusal to make one."""


def by_tokenize(endpoint: Endpoint, body: Mapping[str, Any]) -> Served:
    """Return the prompt that `/tokenize` tells; raises `httpx.HTTPStatusError` when it breaks."""
    return _served(http.post(endpoint, http.TOKENIZE, body), "tokens")


def every(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Served]:
    """Return the prompt by the name of the way the server was asked.

    Chats are rendered as the chat API does it where the server tells that, and where the prompt
    leaves room for an answer. `/tokenize` tells every server's, but knows no reasoning effort.
    """
    found: dict[str, Served] = {}
    room = 0
    if "reasoning_effort" not in body:
        reply = http.post(endpoint, http.TOKENIZE, body)
        found[http.TOKENIZE] = _served(reply, "tokens")
        if reply.is_success:
            room = reply.json().get("max_model_len", 0) - len(reply.json()["tokens"])
    if "reasoning_effort" in body or room > 0:
        reply = http.post(endpoint, http.RENDER, body)
        if reply.status_code not in http.HIDDEN:
            found["the chat API"] = _served(reply, "token_ids")
    return found


def _served(reply: httpx.Response, key: str) -> Served:
    if reply.status_code == httpx.codes.BAD_REQUEST:
        return Refused(reply.text[:300])
    return tuple(reply.raise_for_status().json()[key])
