"""Requests the continuation of an answer that a client began (`continue_final_message`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai

from pytest_vllm_gates.client import http
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint

TOKENS = 64


@dataclass(frozen=True)
class ContinuedAnswer:
    """The answer to one request that ends in a part of an answer."""

    name: str
    traits: Mapping[str, str]
    request: Mapping[str, Any]
    answer: Answer
    begun: str
    """The text that the answer has to continue."""
    prompt_tokens: int | None
    """Tokens of the prompt by `/tokenize`; None if the server does not have that route."""


def ask(
    chat: Chat, endpoint: Endpoint, family: Family, conversation: Conversation, max_tokens: int
) -> list[ContinuedAnswer]:
    """Send a conversation whose last message has to be continued, with each switch value.

    Raises `NotApplicable` if the server refuses to continue a message.
    """
    answers = []
    for thinking in ("unset", "on", "off"):
        switched = conversation.model_copy(update={"thinking": thinking})
        if switched.why_not(family):
            continue
        body = switched.body(family)
        prompt_tokens = _prompt_tokens(endpoint, body)
        request = {**body, "max_tokens": min(TOKENS, max_tokens)}
        for mode, send in (("whole", chat.ask), ("streamed", chat.stream)):
            traits = {"thinking": thinking, "answer": mode}
            try:
                answer = send(request)
            except openai.BadRequestError as error:
                reason = f"the server does not continue a message: {error.message}"
                raise NotApplicable(reason) from error
            name = f"thinking {thinking}, {mode}"
            begun = str(body["messages"][-1]["content"])
            answers.append(ContinuedAnswer(name, traits, request, answer, begun, prompt_tokens))
    return answers


def _prompt_tokens(endpoint: Endpoint, body: Mapping[str, Any]) -> int | None:
    try:
        return len(http.tokenize(endpoint, dict(body)))
    except httpx.HTTPStatusError as error:
        if error.response.is_server_error:
            raise
        return None
