"""Validates bodies and events by the official clients' own types, strictly.

The clients construct their types without validating, so that they read what a server should not
send. A strict client, or one in a typed language, does not.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import anthropic.types as anthropic_types
import openai.types as openai_types
import openai.types.chat as openai_chat_types
import openai.types.responses as openai_responses_types
from pydantic import TypeAdapter, ValidationError

from pytest_vllm_gates.dialects.types import CHAT, COMPLETIONS, MESSAGES, RESPONSES, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

    from pytest_vllm_gates.dialects.types import Reply

TYPES: Mapping[str, tuple[Any, Any]] = {
    CHAT: (openai_chat_types.ChatCompletion, openai_chat_types.ChatCompletionChunk),
    COMPLETIONS: (openai_types.Completion, openai_types.Completion),
    RESPONSES: (openai_responses_types.Response, openai_responses_types.ResponseStreamEvent),
    MESSAGES: (anthropic_types.Message, anthropic_types.RawMessageStreamEvent),
}
# Events of Anthropic's streams that its client's type of messages does not list: keep-alives.
UNTYPED = {"ping"}
# Newer in the specification than some servers: vLLM 0.32 counts it in usage, 0.30 does not.
LATER = {"cache_write_tokens"}
MOST_SENTENCES = 6
SHOWN = 60


@cache
def _adapter(dialect: str, *, whole: bool) -> TypeAdapter[Any]:
    body, event = TYPES[dialect]
    return TypeAdapter(body if whole else event)


def faults(reply: Reply) -> list[str]:
    """Return what the official types refuse in a reply, each kind of fault once."""
    if reply.mode == WHOLE:
        return [f"the body: {fault}" for fault in _faults(reply.dialect, reply.body, whole=True)]
    sentences = []
    for event in reply.events:
        if reply.dialect == MESSAGES and event.kind in UNTYPED:
            continue
        what = event.kind or "an event"
        for fault in _faults(reply.dialect, event.data, whole=False):
            sentence = f"{what}: {fault}"
            if sentence not in sentences:
                sentences.append(sentence)
    return sentences[:MOST_SENTENCES]


def _faults(dialect: str, data: Mapping[str, Any], *, whole: bool) -> Iterator[str]:
    if dialect == COMPLETIONS and not whole:
        data = _ended(data)
    try:
        _adapter(dialect, whole=whole).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        yield from _sentences(error.errors(include_url=False))


def _is_later(error: ErrorDetails) -> bool:
    return error["type"] == "missing" and error["loc"][-1] in LATER


def _ended(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chunk of a completion as one that ends it: only that has OpenAI's client a type for.

    OpenAI's own chunks have a `finish_reason` of null before the last one.
    """
    choices = [
        {**each, "finish_reason": each.get("finish_reason") or "stop"} for each in _choices(chunk)
    ]
    return {**chunk, "choices": choices}


def _choices(chunk: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    choices = chunk.get("choices")
    return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else ()


def _sentences(errors: Sequence[ErrorDetails]) -> Iterator[str]:
    """Yield a sentence for every error, but for those of the members of a union not meant.

    A member is not meant where its `type` is another: its other errors say nothing.
    """
    not_meant = {error["loc"][:-1]: error for error in errors if _is_of_another_type(error)}
    kept = [
        error for error in errors if not any(error["loc"][: len(loc)] == loc for loc in not_meant)
    ]
    if not kept and not_meant:
        shortest = min(not_meant.values(), key=lambda error: len(error["loc"]))
        yield f"{_place(shortest)} {_shown(shortest['input'])} is not known to the official client"
    for error in kept:
        if _is_later(error):
            continue
        yield f"{_place(error)}: {error['msg']}, got {_shown(error['input'])}"


def _is_of_another_type(error: ErrorDetails) -> bool:
    return error["type"] == "literal_error" and error["loc"][-1] == "type"


def _place(error: ErrorDetails) -> str:
    """Return where an error is, without the names of the types that pydantic tried."""
    fields = [str(part) for part in error["loc"] if isinstance(part, int) or part[:1].islower()]
    return ".".join(part for part in fields if "[" not in part and "(" not in part) or "it"


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
