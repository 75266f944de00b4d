"""Validates the bodies and events of every dialect by the official clients' types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic.types as anthropic_types
import openai.types as openai_types
import openai.types.chat as openai_chat_types
import openai.types.responses as openai_responses_types

from pytest_vllm_gates.client.official_types import wrong_fields
from pytest_vllm_gates.dialects.types import CHAT, COMPLETIONS, MESSAGES, RESPONSES, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.dialects.types import Reply

TYPES: Mapping[str, tuple[Any, Any]] = {
    CHAT: (openai_chat_types.ChatCompletion, openai_chat_types.ChatCompletionChunk),
    COMPLETIONS: (openai_types.Completion, openai_types.Completion),
    RESPONSES: (openai_responses_types.Response, openai_responses_types.ResponseStreamEvent),
    MESSAGES: (anthropic_types.Message, anthropic_types.RawMessageStreamEvent),
}
# Events of Anthropic's streams that its client's type of messages does not list: keep-alives.
UNTYPED = {"ping"}
MOST_SENTENCES = 6


def faults(reply: Reply) -> list[str]:
    """Return what the official types refuse in a reply, each kind of fault once."""
    body, event_type = TYPES[reply.dialect]
    if reply.mode == WHOLE:
        return [f"the body: {fault}" for fault in wrong_fields(body, reply.body)]
    sentences: dict[str, None] = {}
    for event in reply.events:
        if reply.dialect == MESSAGES and event.kind in UNTYPED:
            continue
        data = _ended(event.data) if reply.dialect == COMPLETIONS else event.data
        for fault in wrong_fields(event_type, data):
            sentences[f"{event.kind or 'an event'}: {fault}"] = None
    return [*sentences][:MOST_SENTENCES]


def _ended(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a completion's chunk as its last one: OpenAI's client has a type only for that.

    OpenAI's chunks have a `finish_reason` of null before the last one.
    """
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return chunk
    return {**chunk, "choices": [_ended_choice(choice) for choice in choices]}


def _ended_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    return {**choice, "finish_reason": choice.get("finish_reason") or "stop"}
