"""Reads one side's answer: its content, faults of its form, and its figures."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import chat
from pytest_vllm_gates.client.answer import Answer, Recording, Usage
from pytest_vllm_gates.client.decoding import PLAIN, Decompressor
from pytest_vllm_gates.client.form import Malformed, reading
from pytest_vllm_gates.client.untyped import number, record, records, string
from pytest_vllm_gates.conversations.checks import chunks as chunk_checks, events as event_checks
from pytest_vllm_gates.dialects import (
    completions,
    events_messages,
    events_responses,
    messages,
    responses,
)
from pytest_vllm_gates.dialects.types import events_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.exchange import Sent

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/chat/completions", "/completions", "/responses", "/messages"
)  # fmt: skip
CARRYING = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|arguments|delta|thinking|partial_json|name)"'
    rb'\s*:\s*"[^"]'
)
"""A nonempty text under one of the names that the dialects' deltas give it."""


@dataclass
class SideReading:
    """One side's answer."""

    answer: Answer | None = None
    """The parsed answer; None if that dialect is not parsed."""
    framing: list[str] = field(default_factory=list)
    characters: list[str] = field(default_factory=list)
    """Chunks with incomplete characters."""
    figures: dict[str, float] = field(default_factory=dict)


def read(sent: Sent, request: Mapping[str, Any]) -> SideReading:
    """Read an answer of status 200."""
    found = SideReading()
    kind = _header(sent, "content-type")
    try:
        pieces = _decoded(sent)
    except httpx.DecodingError as error:
        found.framing.append(str(error))
        return found
    recording = Recording(kind, pieces)
    streamed = bool(request.get("stream"))
    path = sent.path.partition("?")[0]
    try:
        with reading("the stream" if streamed else "the body"):
            if streamed:
                _read_stream(found, path, recording, request)
            else:
                _read_whole(found, path, recording)
    except Malformed as error:
        found.framing.append(str(error))
    if found.answer and found.answer.usage:
        found.figures["tokens"] = found.answer.usage.completion_tokens
    found.figures.update(_times(pieces, streamed=streamed))
    return found


def _read_whole(found: SideReading, path: str, recording: Recording) -> None:
    from openai.types import chat as openai_chat  # noqa: PLC0415 - heavy

    body = json.loads(recording.body)
    if not isinstance(body, dict):
        raise Malformed("the body is not a JSON object")
    if path.endswith(CHAT):
        found.answer = chat.whole(openai_chat.ChatCompletion.construct(**body))
    elif path.endswith(COMPLETIONS):
        found.answer = completions.answer({**body, "choices": records(body["choices"])[:1]})
    elif path.endswith(RESPONSES):
        found.answer = responses.answer(body)
    elif path.endswith(MESSAGES):
        found.answer = messages.answer(body)


def _read_stream(
    found: SideReading, path: str, recording: Recording, request: Mapping[str, Any]
) -> None:
    if path.endswith((CHAT, COMPLETIONS)):
        found.framing += event_checks.faults(recording)
        parts = event_checks.chunks(recording)
        if error := next((part["error"] for part in parts if part.get("error")), None):
            found.framing.append(f"the stream has an error: {json.dumps(error)[:200]}")
            return
        if path.endswith(CHAT):
            _read_chat_stream(found, parts, request)
        else:
            found.answer = _completion(parts)
        return
    events, _ = events_of(recording.body)
    if path.endswith(RESPONSES):
        found.framing += events_responses.faults(events)
        last = record(events[-1].data.get("response")) if events else {}
        found.answer = responses.answer(last) if last else None
    elif path.endswith(MESSAGES):
        found.framing += events_messages.faults(events)
        found.framing += events_messages.unreadable_inputs(events)


def _read_chat_stream(
    found: SideReading, parts: Sequence[dict[str, Any]], request: Mapping[str, Any]
) -> None:
    from openai.types.chat import ChatCompletionChunk  # noqa: PLC0415 - heavy

    usage = bool(record(request.get("stream_options")).get("include_usage"))
    for sentence in chunk_checks.faults(parts, number(request.get("n")) or 1, usage=usage):
        split = chunk_checks.SPLITS in sentence
        (found.characters if split else found.framing).append(sentence)
    found.answer = chat.assemble(
        ChatCompletionChunk.construct(**{**part, "choices": _first(part)}) for part in parts
    )


def _first(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in records(part.get("choices")) if not each.get("index")]


def _completion(parts: Sequence[Mapping[str, Any]]) -> Answer:
    text, finish, usage = "", None, None
    for part in parts:
        counted = record(part.get("usage"))
        if counted:
            usage = Usage(number(counted["prompt_tokens"]), number(counted["completion_tokens"]))
        for choice in _first(part):
            text += string(choice.get("text"))
            finish = choice.get("finish_reason") or finish
    return Answer("", text, (), finish, usage)


def _times(pieces: Sequence[tuple[float, bytes]], *, streamed: bool) -> Iterator[tuple[str, float]]:
    """Yield the time figures; none for a recorded answer, whose times are 0."""
    if not pieces or not pieces[-1][0]:
        return
    if not streamed:
        yield "whole_s", pieces[-1][0]
        return
    carrying = [at_s for at_s, piece in pieces if _carries(piece)]
    if carrying:
        yield "ttft_s", carrying[0]
    if len(carrying) > 1:
        yield "itl_s", (carrying[-1] - carrying[0]) / (len(carrying) - 1)


def _carries(piece: bytes) -> bool:
    """Return whether a piece of a stream contains a part of the answer."""
    return CARRYING.search(piece) is not None


def _decoded(sent: Sent) -> tuple[tuple[float, bytes], ...]:
    encoding = _header(sent, "content-encoding").strip().lower()
    if encoding in PLAIN:
        return sent.pieces
    decompressor = Decompressor(encoding)
    return tuple((at_s, piece) for at_s, data in sent.pieces for piece in decompressor.pieces(data))


def _header(sent: Sent, name: str) -> str:
    return next((value for key, value in sent.response_headers.items() if key.lower() == name), "")
