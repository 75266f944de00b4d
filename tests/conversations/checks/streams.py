"""A valid stream, for tests that break one thing in it."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.answer import Recording

if TYPE_CHECKING:
    from collections.abc import Callable

Chunks = list[dict[str, Any]]
HEAD = {"id": "chat-1", "object": "chat.completion.chunk", "created": 7, "model": "qwen3.5"}


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0
) -> dict[str, Any]:
    """Return a chunk with one choice."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {**HEAD, "choices": [choice]}


def call_chunk(index: int, arguments: str = "", **first: Any) -> dict[str, Any]:
    """Return a chunk with a piece of a tool call; `first` are the first piece's fields."""
    function = {"arguments": arguments}
    if name := first.pop("name", None):
        function["name"] = name
    return chunk({"tool_calls": [{"index": index, "function": function, **first}]})


COUNTED = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
USAGE = {**HEAD, "choices": [], "usage": COUNTED}
CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning": "Hm."}),
    chunk({"content": "東京 ☔"}),
    chunk(finish="stop"),
    USAGE,
]
CALLS = [
    CHUNKS[0],
    call_chunk(0, id="call-1", type="function", name="get_weather"),
    call_chunk(0, '{"city": '),
    call_chunk(0, '"Oslo"}'),
    call_chunk(1, "{}", id="call-2", type="function", name="get_time"),
    chunk(finish="tool_calls"),
    USAGE,
]


def altered(
    number: int, change: Callable[[dict[str, Any]], object], chunks: Chunks = CHUNKS
) -> Chunks:
    """Return a copy of a stream with one chunk changed."""
    copied = copy.deepcopy(chunks)
    change(copied[number])
    return copied


def bytes_of(chunks: Chunks, *, done: bool = True, between: str = "\n\n") -> bytes:
    """Return a stream's bytes."""
    events = [json.dumps(event, ensure_ascii=False) for event in chunks] + ["[DONE]"] * done
    return "".join(f"data: {event}{between}" for event in events).encode()


def recording(body: bytes, kind: str = "text/event-stream; charset=utf-8") -> Recording:
    """Return bytes as they arrived, in two pieces."""
    middle = len(body) // 2
    return Recording(kind, ((0.1, body[:middle]), (0.2, body[middle:])))
