"""Sends chat requests through the openai client, as users do, whole or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage
from pytest_vllm_gates.client.form import count, reading, text, token_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import httpx2 as httpx
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.endpoint import Endpoint

REQUEST_TIMEOUT_S = 300.0
# OpenAI's parameters, which its client takes by name. All others are vLLM's and go to extra_body.
STANDARD = frozenset(
    {
        "messages", "tools", "tool_choice", "reasoning_effort", "response_format", "stop",
        "logit_bias", "model", "max_tokens", "temperature", "top_p", "seed", "stream",
        "stream_options",
    }
)  # fmt: skip
SHOWN = 120
CALL_NAME = "tool_calls[].function.name"
SAMPLING = {"temperature": 0, "seed": 0}


class Chat:
    """A family at an endpoint. Sampling is greedy, and a failed request is not retried."""

    def __init__(
        self, endpoint: Endpoint, family: Family, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Connect; `transport` replaces the default transport."""
        self._endpoint = endpoint
        self._family = family
        self.client = openai.OpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key or "none",
            max_retries=0,
            default_headers=dict(endpoint.headers),
            http_client=openai.DefaultHttpxClient(
                trust_env=False,
                timeout=REQUEST_TIMEOUT_S,
                transport=transport or http.transport(endpoint),
            ),
        )

    def whole(self, conversation: Conversation, max_tokens: int) -> Answer:
        """Request a conversation's answer in one piece."""
        return self.ask(conversation.body(self._family) | {"max_tokens": max_tokens})

    def streamed(self, conversation: Conversation, max_tokens: int) -> Answer:
        """Request a conversation's answer as a stream and assemble it as a client does."""
        return self.stream(conversation.body(self._family) | {"max_tokens": max_tokens})

    def ask(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request's body and return the whole answer; raises `ValueError` without one."""
        with reading("the answer"):
            reply = self.client.chat.completions.create(
                **self._arguments(body), extra_headers=headers
            )
            return whole(reply)

    def stream(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request's body and assemble its stream."""
        with reading("the stream"):
            return assemble(self.chunks(body, headers))

    def chunks(
        self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Iterable[ChatCompletionChunk]:
        """Send a request's body and return the chunks of its stream, usage last."""
        request = {**body, "stream": True, "stream_options": {"include_usage": True}}
        chunks: Iterable[ChatCompletionChunk] = self.client.chat.completions.create(
            **self._arguments(request), extra_headers=headers
        )
        return chunks

    def _arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `chat.completions.create`; greedy unless the body differs."""
        parameters: dict[str, Any] = {"model": self._endpoint.model, **SAMPLING, **body}
        parameters = {key: value for key, value in parameters.items() if value is not None}
        arguments = {key: value for key, value in parameters.items() if key in STANDARD}
        if extra := {key: value for key, value in parameters.items() if key not in STANDARD}:
            arguments["extra_body"] = extra
        return arguments


def assemble(chunks: Iterable[ChatCompletionChunk]) -> Answer:
    """Assemble a streamed answer by OpenAI's rules: append text, merge calls by index."""
    texts = {"reasoning": "", "content": ""}
    calls: dict[int, dict[str, str]] = {}
    fields: dict[str, Any] = {"finish_reason": None, "stop_reason": None, "reasoning_key": None}
    usage: Usage | None = None
    deltas: list[tuple[int, ...]] = []
    carrying = 0
    for chunk in chunks:
        usage = _usage(chunk.usage) or usage
        for choice in chunk.choices:
            delta = choice.delta
            key, more = _reasoning(delta)
            carrying += bool(more or delta.content or delta.tool_calls)
            texts["reasoning"] += more
            texts["content"] += text(delta.content, "delta.content")
            for part in delta.tool_calls or ():
                call = calls.setdefault(part.index, {"name": "", "arguments": "", "id": ""})
                call["id"] += text(part.id, "tool_calls[].id")
                if part.function:
                    call["name"] += text(part.function.name, CALL_NAME)
                    call["arguments"] += _arguments(part.function.arguments)
            finish = _named(choice.finish_reason, "finish_reason")
            fields["finish_reason"] = finish or fields["finish_reason"]
            fields["stop_reason"] = getattr(choice, "stop_reason", None) or fields["stop_reason"]
            fields["reasoning_key"] = key or fields["reasoning_key"]
            if ids := _ids(choice):
                deltas.append(ids)
    return Answer(
        **texts,
        **fields,
        tool_calls=tuple(
            ToolCall(call["name"], call["arguments"], call["id"] or None)
            for _, call in sorted(calls.items())
        ),
        usage=usage,
        chunks=carrying,
        token_ids=tuple(number for ids in deltas for number in ids),
        delta_tokens=tuple(len(ids) for ids in deltas),
    )


def whole(reply: Any) -> Answer:
    """Return the first choice of a whole answer; raises `ValueError` or similar without one."""
    choice = _choice(reply)
    return Answer(
        reasoning=_reasoning(choice.message)[1],
        content=text(choice.message.content, "content"),
        tool_calls=tuple(_call(call) for call in choice.message.tool_calls or ()),
        finish_reason=_named(choice.finish_reason, "finish_reason"),
        usage=_usage(reply.usage),
        stop_reason=getattr(choice, "stop_reason", None),
        reasoning_key=_reasoning(choice.message)[0],
        token_ids=_ids(choice),
    )


def _choice(reply: Any) -> Any:
    """Return the first choice; the client passes on every answer of a server."""
    if choices := getattr(reply, "choices", None):
        return choices[0]
    raise ValueError(f"the answer is not a chat completion: {str(reply)[:SHOWN]!r}")


def _call(call: Any) -> ToolCall:
    return ToolCall(
        text(call.function.name, CALL_NAME),
        _arguments(call.function.arguments),
        _named(call.id, "tool_calls[].id"),
    )


def _arguments(value: Any) -> str:
    """Return a call's arguments as text: the tools gate judges invalid JSON."""
    return "" if value is None else str(value)


def _named(value: Any, where: str) -> str | None:
    return None if value is None else text(value, where)


def _ids(choice: Any) -> tuple[int, ...]:
    return tuple(token_ids(getattr(choice, "token_ids", None) or [], "token_ids"))


def _reasoning(message: Any) -> tuple[str | None, str]:
    """Return the key and the text of the reasoning.

    vLLM's key was `reasoning_content` and is now `reasoning`.
    """
    for key in ("reasoning", "reasoning_content"):
        if found := text(getattr(message, key, None), key):
            return key, found
    return None, ""


def _usage(usage: CompletionUsage | None) -> Usage | None:
    if not usage:
        return None
    return Usage(
        count(usage.prompt_tokens, "usage.prompt_tokens"),
        count(usage.completion_tokens, "usage.completion_tokens"),
    )
