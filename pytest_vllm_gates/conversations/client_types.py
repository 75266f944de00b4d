"""Reads answers with the types of the installed openai client, and streams with its own helper."""

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
"""Sentences of one answer at most."""


def body_faults(body: Recording) -> Iterator[str]:
    """Yield a sentence for each field of a whole answer that has another type than specified."""
    yield from _wrong_fields(ChatCompletion, [body.body] if body.pieces else [], "whole answer")


def chunk_faults(chunks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same for the chunks of a stream, a fault that several have once."""
    yield from _wrong_fields(ChatCompletionChunk, chunks, "chunk")


def assembly_faults(chunks: Iterable[Mapping[str, Any]], answer: Answer) -> Iterator[str]:
    """Yield a sentence where the official client's helper makes another answer of the chunks.

    `answer` is put together by the rules of the specification: texts append, calls merge by index.
    """
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    try:
        for chunk in chunks:
            state.handle_chunk(ChatCompletionChunk.construct(**chunk))  # as it reads them itself
        (choice,) = state.current_completion_snapshot.choices
        read = _read(choice)
    except Exception as error:  # noqa: BLE001 - whatever that client raises, its user meets
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
            yield f"the openai client reads {name} as {shown(theirs)}, the chunks hold {ours}"


def _read(choice: Any) -> dict[str, Any]:
    """Return what the official client's helper made of a choice."""
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
