"""Sends one request that has to be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.vision.seen import RefusedCase

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.client.endpoint import Endpoint

ERROR_CHARACTERS = 300
MAX_TOKENS = 16


def refusal(
    endpoint: Endpoint,
    name: str,
    group: str,
    messages: list[dict[str, Any]],
    afterwards: Callable[[], str] = str,
) -> RefusedCase:
    """Send messages and return the answer; `afterwards` returns what is wrong after it."""
    body = {"messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
    try:
        reply = http.post(endpoint, http.CHAT, body)
        status, message, is_error = _error_of(reply)
    except httpx.HTTPError as error:
        status, message, is_error = 0, f"{type(error).__name__}: {error}", False
    return RefusedCase(name, group, body, status, message, is_error, afterwards())


def _error_of(reply: httpx.Response) -> tuple[int, str, bool]:
    """Return the status, the message, and whether the body is an error of OpenAI's form."""
    try:
        message = reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return reply.status_code, reply.text[:ERROR_CHARACTERS], False
    return reply.status_code, str(message)[:ERROR_CHARACTERS], isinstance(message, str)
