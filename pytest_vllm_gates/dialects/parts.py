"""Judges the parts of an answer: they are in the order that a model writes, and not empty.

When a client sends a message back, Anthropic's API refuses it if text precedes thinking
(https://github.com/anthropics/claude-code/issues/20705) or if a text is empty
(https://github.com/NousResearch/hermes-agent/pull/13010).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import records
from pytest_vllm_gates.dialects.types import MESSAGES, RESPONSES, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.dialects.types import Reply

THOUGHT = ("thinking", "redacted_thinking", "reasoning")


def faults(reply: Reply) -> Iterator[str]:
    """Yield the faults in the content of a message or the output of a response.

    The only part of an answer may be empty: then the model wrote nothing.
    """
    body = reply.assembled if reply.mode == STREAM else reply.body
    name = {MESSAGES: "content", RESPONSES: "output"}.get(reply.dialect)
    if name is None:
        return
    parts = records(body.get(name))
    kinds = [str(part.get("type")) for part in parts]
    thought = [kind in THOUGHT for kind in kinds]
    if thought != sorted(thought, reverse=True):
        yield f"{name}: {', '.join(kinds)}: thinking has to come first"
    for place, part in enumerate(parts):
        if len(parts) > 1 and "" in _texts(part):
            yield f"{name}[{place}] is {kinds[place]} without any text"


def _texts(part: Mapping[str, Any]) -> Iterator[object]:
    """Yield the texts of a block, or of the parts of an item."""
    if part.get("type") in ("text", "output_text", "reasoning_text"):
        yield part.get("text")
    if part.get("type") == "thinking":
        yield part.get("thinking")
    for inner in records(part.get("content")):
        yield from _texts(inner)
