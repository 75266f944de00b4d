"""Reads answers with the types of the installed openai client, as a strict client does.

The client itself takes what comes without validating it, so a field of a wrong type passes unseen.
Its types are made from OpenAI's published specification. Fields it does not know are allowed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer, Recording

CUSTOM_CALL = "ChatCompletionMessageCustomToolCall"
SHOWN = 60
MOST = 3
"""Sentences of one answer at most."""


def body_faults(body: Recording) -> Iterator[str]:
    """Yield a sentence for each field of a whole answer that has another type than specified."""
    yield from _wrong_fields(ChatCompletion, [body.body] if body.pieces else [], "whole answer")


def chunk_faults(chunks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the same for the chunks of a stream, a fault that several have once."""
    yield from _wrong_fields(ChatCompletionChunk, map(json.dumps, chunks), "chunk")


def assembly_faults(chunks: Iterable[Mapping[str, Any]], answer: Answer) -> Iterator[str]:
    """Yield a sentence where the official client's helper makes another answer of the chunks.

    `answer` is put together by the rules of the specification: texts append, calls merge by index.
    """
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    try:
        for chunk in chunks:
            state.handle_chunk(ChatCompletionChunk.construct(**chunk))  # as it reads them itself
        (choice,) = state.current_completion_snapshot.choices
    except Exception as error:  # noqa: BLE001 - whatever that client raises, its user meets
        yield f"the openai client cannot read the stream: {type(error).__name__}: {error}"
        return
    message = choice.message
    calls = [
        (getattr(call, "id", None), call.function.name, call.function.arguments or "")
        for call in message.tool_calls or ()
        if call.type == "function"
    ]
    due = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
    read = {
        "role": (message.role, "assistant"),
        "content": (message.content or "", answer.content),
        "tool_calls": (calls, due),
        "finish_reason": (choice.finish_reason, answer.finish_reason),
    }
    for name, (theirs, ours) in read.items():
        if theirs != ours:
            shown = repr(theirs)[:SHOWN], repr(ours)[:SHOWN]
            yield f"the openai client reads {name} as {shown[0]}, the chunks hold {shown[1]}"


def _wrong_fields(
    model: type[ChatCompletion | ChatCompletionChunk], texts: Iterable[str | bytes], what: str
) -> Iterator[str]:
    sentences: dict[str, None] = {}
    for text in texts:
        try:
            model.model_validate_json(text, strict=True)
        except ValidationError as invalid:
            for error in invalid.errors(include_url=False):
                steps = [str(step) for step in error["loc"]]
                # A call is compared with each kind of call; custom ones were not requested.
                if CUSTOM_CALL in steps:
                    continue
                path = [step for step in steps if not step.startswith("ChatCompletion")]
                value = repr(error["input"])[:SHOWN]
                sentences[f"{what}: {'.'.join(path)}: {error['msg']}, and it is {value}"] = None
    yield from [*sentences][:MOST]
