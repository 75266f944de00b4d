"""A server's prompts of chat requests, from each endpoint that reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import form, http
from pytest_vllm_gates.client.form import reading
from pytest_vllm_gates.goldens import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint

Served = tuple[int, ...] | Refused
"""The token ids of a prompt, or the server's refusal to make one."""

ONE_TOKEN = {"max_tokens": 1, "return_token_ids": True}


def tokenized_prompt(endpoint: Endpoint, body: Mapping[str, Any]) -> Served:
    """Return the prompt that `/tokenize` reports; raises `httpx.HTTPStatusError` if it breaks."""
    return _served(http.post(endpoint, http.TOKENIZE, body), "tokens")


def served_prompts(
    endpoint: Endpoint, body: Mapping[str, Any], *, chats: bool
) -> dict[str, Served]:
    """Return the prompt by the name of the endpoint that reports it.

    `/tokenize` reports it on most servers. The chat API's rendering is added if the server has it,
    and with `chats` the prompt of a chat that generates one token; both only if the prompt leaves
    room for an answer.
    """
    prompts: dict[str, Served] = {}
    room = 0
    by_tokenize = _known_to_tokenize(body)
    if by_tokenize:
        reply = http.post(endpoint, http.TOKENIZE, body)
        prompts[http.TOKENIZE] = _served(reply, "tokens")
        if reply.is_success:
            with reading(f"the answer of {http.TOKENIZE}"):
                answer = reply.json()
                longest = form.count(answer.get("max_model_len") or 0, "max_model_len")
                room = longest - len(answer["tokens"])
    if by_tokenize and room <= 0:
        return prompts
    reply = http.post(endpoint, http.RENDER, body)
    if reply.status_code not in http.HIDDEN:
        prompts["the chat API"] = _served(reply, "token_ids")
    if chats:
        reply = http.post(endpoint, http.CHAT, {**body, **ONE_TOKEN})
        with reading("the answer of a chat"):
            told = not reply.is_success or bool(reply.json().get("prompt_token_ids"))
        if told:
            prompts["a chat"] = _served(reply, "prompt_token_ids")
    return prompts


def _known_to_tokenize(body: Mapping[str, Any]) -> bool:
    """Return whether `/tokenize` reads all of a request: no effort, no reasoning's old name."""
    old = any("reasoning_content" in message for message in body["messages"])
    return not old and "reasoning_effort" not in body


def _served(reply: httpx.Response, key: str) -> Served:
    if reply.status_code == httpx.codes.BAD_REQUEST:
        return Refused(reply.text[:300])
    reply.raise_for_status()
    with reading("the rendered prompt"):
        return tuple(form.token_ids(reply.json()[key], key))
