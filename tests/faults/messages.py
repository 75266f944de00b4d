"""Alters an answer as a client reads it, alike for whole and streamed answers."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.exchange import Exchange
    from faults.fault import Change

FIRST_CHAT_TOKENS = 100
CHUNK = 8  # characters


@dataclass
class Call:
    """One tool call; `arguments` is the JSON text."""

    name: str
    arguments: str
    id: str | None

    @property
    def values(self) -> dict[str, Any]:
        """The arguments, parsed; empty if they are not an object."""
        try:
            values = json.loads(self.arguments)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}

    @values.setter
    def values(self, values: dict[str, Any]) -> None:
        self.arguments = json.dumps(values, ensure_ascii=False)


@dataclass
class Message:
    """The contents of an answer, and its request."""

    asked: dict[str, Any]
    reasoning: str
    content: str
    calls: list[Call] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] = field(default_factory=list)

    @property
    def first_chat(self) -> bool:
        """Whether this is the short chat by which a server is found to be ready."""
        return int(self.asked.get("max_tokens") or 0) < FIRST_CHAT_TOKENS

    @property
    def thinking(self) -> bool | None:
        """Whether thinking was switched on or off; None where neither."""
        switch = (self.asked.get("chat_template_kwargs") or {}).get("enable_thinking")
        return None if switch is None else bool(switch)

    @property
    def format(self) -> str | None:
        """The kind of the requested format."""
        if "response_format" in self.asked:
            return "json"
        return "regex" if "regex" in (self.asked.get("structured_outputs") or {}) else None

    @property
    def choice(self) -> str:
        """The value of tool_choice; empty if no tools are declared."""
        if not self.asked.get("tools"):
            return ""
        choice = self.asked.get("tool_choice", "auto")
        return choice if isinstance(choice, str) else "named"

    @property
    def stops(self) -> list[str]:
        """The requested stop strings."""
        return list(self.asked.get("stop") or ())

    @property
    def stopped(self) -> bool:
        """Whether the request's own stop ended it."""
        return self.stop_reason is not None

    @property
    def after_tool(self) -> bool:
        """Whether a tool's result was sent."""
        return any(message["role"] == "tool" for message in self.asked["messages"])


def as_message(change: Callable[[Message], None]) -> Change:
    """Turn a change of an answer's contents into a change of the exchange; others pass."""

    @functools.wraps(change)
    def alter(exchange: Exchange) -> None:
        message = _read(exchange)
        before = copy.deepcopy(message)
        change(message)
        if message != before:
            _write(exchange, message)

    return alter


def _read(exchange: Exchange) -> Message:
    message = Message(exchange.body, "", "")
    calls: dict[int, Call] = {}
    for choice in exchange.choices:
        part = choice["delta" if exchange.streamed else "message"]
        message.reasoning += part.get("reasoning") or ""
        message.content += part.get("content") or ""
        for number, piece in enumerate(part.get("tool_calls") or ()):
            call = calls.setdefault(piece.get("index", number), Call("", "", None))
            call.name += piece["function"].get("name") or ""
            call.arguments += piece["function"].get("arguments") or ""
            call.id = piece.get("id") or call.id
        message.finish_reason = choice.get("finish_reason") or message.finish_reason
        message.stop_reason = choice.get("stop_reason") or message.stop_reason
        message.token_ids += choice.get("token_ids") or []
    message.calls = list(calls.values())
    return message


def _write(exchange: Exchange, message: Message) -> None:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.calls
    ]
    ends = {"finish_reason": message.finish_reason, "stop_reason": message.stop_reason}
    if not exchange.streamed:
        (choice,) = exchange.choices
        choice |= {**ends, "token_ids": message.token_ids or None}
        choice["message"] |= {
            "reasoning": message.reasoning or None,
            "content": message.content or None,
            "tool_calls": calls,
        }
        return
    with_choices = [event for event in exchange.events if event.get("choices")]
    counting = [event for event in exchange.events if not event.get("choices")]
    deltas = [
        *({"reasoning": piece} for piece in _pieces(message.reasoning)),
        *({"content": piece} for piece in _pieces(message.content)),
        *(delta for index, call in enumerate(calls) for delta in _call_deltas(index, call)),
        {},
    ]
    exchange.events = [with_choices[0]]
    for delta in deltas:
        event = copy.deepcopy(with_choices[-1])
        event["choices"][0] |= {"delta": delta, "finish_reason": None, "stop_reason": None}
        event["choices"][0]["token_ids"] = message.token_ids if delta is deltas[0] else None
        exchange.events.append(event)
    exchange.events[-1]["choices"][0] |= ends
    exchange.events += counting


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]


def _call_deltas(index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head, *later_pieces = _pieces(call["function"]["arguments"]) or [""]
    first_call = {**call, "index": index, "function": {**call["function"], "arguments": head}}
    yield {"tool_calls": [first_call]}
    for piece in later_pieces:
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
