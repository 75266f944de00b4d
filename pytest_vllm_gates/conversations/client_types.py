"""Reads answers with the types of the installed openai client, and streams with its helper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from pytest_vllm_gates.client.official_types import wrong_fields
from pytest_vllm_gates.client.untyped import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer, Recording

MOST = 3
"""The maximum number of sentences for one answer."""


def body_faults(body: Recording) -> Iterator[str]:
    """Yield a sentence for each field of a whole answer whose type is not as specified."""
    yield from _wrong_fields(ChatCompletion, [body.body] if body.pieces else [], "whole answer")


def chunk_faults(chunks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same for the chunks of a stream, each fault once."""
    yield from _wrong_fields(ChatCompletionChunk, chunks, "chunk")


def assembly_faults(chunks: Iterable[Mapping[str, Any]], answer: Answer) -> Iterator[str]:
    """Yield a sentence if the official client's helper reads another answer from the chunks.

    `answer` is assembled by the rules of the specification: texts append, calls merge by index.
    """
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    try:
        for chunk in chunks:
            state.handle_chunk(ChatCompletionChunk.construct(**chunk))  # as the client reads them
        (choice,) = state.current_completion_snapshot.choices
        read = _read(choice)
    except Exception as error:  # noqa: BLE001 - any error of that client reaches its user
        yield f"the openai client cannot read the stream: {type(error).__name__}: {error}"
        return
    held = {
        "role": "assistant",
        "content": answer.content,
        "tool_calls": [(call.id, call.name, call.arguments) for call in answer.tool_calls],
        "finish_reason": answer.finish_reason,
    }
    for name, theirs in read.items():
        if theirs != held[name]:
            ours = shown(held[name])
            yield f"the openai client reads {name} as {shown(theirs)}, the chunks have {ours}"


def _read(choice: Any) -> dict[str, Any]:
    """Return a choice as the official client's helper assembled it."""
    message = choice.message
    calls = [call for call in message.tool_calls or () if call.type == "function"]
    return {
        "role": message.role,
        "content": message.content or "",
        "tool_calls": [
            (getattr(call, "id", None), call.function.name, call.function.arguments or "")
            for call in calls
        ],
        "finish_reason": choice.finish_reason,
    }


def _wrong_fields(official: Any, values: Iterable[Any], what: str) -> Iterator[str]:
    sentences = {
        f"{what}: {fault}": None for value in values for fault in wrong_fields(official, value)
    }
    yield from [*sentences][:MOST]
