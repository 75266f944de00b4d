"""The rules for a stream of Anthropic's Messages API: order, indices, and blocks' contents.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.untyped import number, record, shown, string
from pytest_vllm_gates.dialects.messages import INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.dialects.types import Event

DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "citations_delta": "text",
}
EMPTY: Mapping[str, Mapping[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "tool_use": {"input": {}},
}
ONCE = ("message_start", "message_delta", "message_stop")


def faults(events: Sequence[Event]) -> Iterator[str]:
    """Yield the faults of a stream's events; keep-alives may come anywhere."""
    for event in events:
        if event.name != event.kind:
            yield f"the event has the name {event.name!r}, and its data has the type {event.kind!r}"
            break
    told = [event for event in events if event.kind != "ping"]
    if not told:
        yield "the stream has no event"
        return
    yield from _order(told)
    blocks = _Blocks()
    for event in told:
        yield from blocks.take(event)
    yield from blocks.end()


def _order(told: Sequence[Event]) -> Iterator[str]:
    for event in told:
        if event.kind == "error":
            yield f"the stream has an error: {shown(event.data.get('error'))}"
    if told[0].kind != "message_start":
        yield f"the first event is {told[0].kind!r}, not 'message_start'"
    if told[-1].kind != "message_stop":
        yield f"the last event is {told[-1].kind!r}, not 'message_stop'"
    for kind in ONCE:
        count = sum(event.kind == kind for event in told)
        # A message_delta may come several times; its usage is cumulative.
        if count == 0 or (count > 1 and kind != "message_delta"):
            yield f"{kind} comes {count} times"


class _Blocks:
    """The content blocks of a stream while they are built."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._begun = 0
        self._inputs = 0

    def take(self, event: Event) -> Iterator[str]:
        """Yield the faults of an event after the previous ones."""
        kind, data = event.kind, event.data
        if kind == "message_start":
            message = record(data.get("message"))
            self._inputs = _inputs(message)
            yield from _start(message)
        elif kind == "content_block_start":
            yield from self._start_block(data.get("index"), record(data.get("content_block")))
        elif kind == "content_block_delta":
            yield from self._delta(data.get("index"), record(data.get("delta")))
        elif kind == "content_block_stop":
            yield from self._stop_block(data.get("index"))
        elif kind == "message_delta":
            if self._open:
                yield f"message_delta comes while block {min(self._open)} is open"
            if not record(data.get("delta")).get("stop_reason"):
                yield "message_delta has no stop_reason"
            if not record(data.get("usage")).get("output_tokens"):
                yield "message_delta counts no output_tokens"
            # It may leave them out; otherwise it has to repeat the count that the client read.
            if (inputs := _inputs(data)) not in (0, self._inputs):
                yield f"message_start counts {self._inputs} input tokens, message_delta {inputs}"

    def _start_block(self, index: Any, block: Mapping[str, Any]) -> Iterator[str]:
        kind = str(block.get("type"))
        if self._open:
            yield f"block {index!r} starts while block {min(self._open)} is open"
        if index != self._begun:
            yield f"a block starts with index {index!r}, and {self._begun} is next"
        for name, empty in EMPTY.get(kind, {}).items():
            if block.get(name) != empty:
                yield f"a {kind} block starts with {name} {shown(block.get(name))}"
        self._begun += 1
        if isinstance(index, int):
            self._open[index] = kind

    def _delta(self, index: Any, delta: Mapping[str, Any]) -> Iterator[str]:
        kind = delta.get("type")
        if not self._is_open(index):
            yield f"a {kind} names block {shown(index)}, which is not open"
        elif DELTAS.get(str(kind)) != self._open[index]:
            yield f"a {kind} comes in a block of type {self._open[index]!r}"

    def _stop_block(self, index: Any) -> Iterator[str]:
        if not self._is_open(index):
            yield f"block {shown(index)} stops, and is not open"
            return
        del self._open[index]

    def _is_open(self, index: Any) -> bool:
        return isinstance(index, int) and index in self._open

    def end(self) -> Iterator[str]:
        """Yield the faults at the end of the stream."""
        for index, kind in self._open.items():
            yield f"the {kind} block {index} never stops"


def unreadable_inputs(events: Sequence[Event]) -> Iterator[str]:
    """Yield inputs of calls that are not JSON objects, except those that the limit cut."""
    inputs: dict[Any, str] = {}
    for event in events:
        delta = record(event.data.get("delta"))
        if delta.get("stop_reason") == "max_tokens":
            return
        if event.kind == "content_block_delta" and delta.get("type") == "input_json_delta":
            index = number(event.data.get("index"))
            inputs[index] = inputs.get(index, "") + string(delta.get("partial_json"))
    for index, text in inputs.items():
        try:
            value = json.loads(text or "{}")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            yield f"the input of block {index} is not a JSON object: {shown(text)}"


def _start(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("content") != []:
        yield f"message_start has content: {shown(message.get('content'))}"
    if message.get("stop_reason"):
        yield f"message_start has the stop_reason {shown(message['stop_reason'])}"
    if not _inputs(message):
        yield "message_start counts no input_tokens"


def _inputs(message: Mapping[str, Any]) -> int:
    """Return the number of input tokens in a message's usage."""
    usage = record(message.get("usage"))
    return sum(number(usage.get(name)) for name in INPUTS)
