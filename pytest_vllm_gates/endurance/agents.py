"""Agents whose conversations grow turn by turn, with a known answer to every question.

All share one long beginning, some behind different pictures. A turn has a question, a call with
its result, and a second question. A grammar allows only one answer to it, a nonce that no other
agent has: a server that answers another's request, loses one or mixes two up returns another nonce.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.questions import ticket
from pytest_vllm_gates.endurance.known import picture

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from pytest_vllm_gates.catalog.family import Family

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather forecast for a city.",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}},
        },
    },
}
NONCES = 64
"""The different grammars of one agent. vLLM keeps compiled grammars, up to 512 MiB of them: a new
one for each request took 9 KiB a request, which looked like a leak (VLLM_XGRAMMAR_CACHE_MB)."""
CITIES = ("Oslo", "Lima", "Cairo", "Pune", "Quito", "Turin", "Osaka", "Accra")


@dataclass
class Agent:
    """One agent; after `turns` turns it begins a new conversation."""

    family: Family
    beginning: str
    tool_result: str
    turns: int
    chance: random.Random
    model: str = ""
    """The adapter that it uses; empty for the served model."""
    shows: bool = False
    """Whether each of its conversations begins with a picture."""
    _history: list[dict[str, Any]] = field(default_factory=list)
    _turn: int = 0
    _name: str = ""

    def __post_init__(self) -> None:
        nonces = [f"{self.chance.getrandbits(32):08x}" for _ in range(NONCES)]
        self._nonces = itertools.cycle(nonces)

    def next(self) -> tuple[dict[str, Any], str]:
        """Return the next request, and the nonce that its answer must contain."""
        if not self._history or self._turn >= self.turns:
            self._name = f"{self.chance.getrandbits(32):08x}"
            self._history = [{"role": "user", "content": self._opening()}, _said("I am.")]
            self._turn = 0
        self._turn += 1
        nonce = next(self._nonces)
        body = ticket(self.family, "", nonce, streamed=bool(self._turn % 2))
        (asked,) = body["messages"]
        messages = [*self._history, *self._use_of_a_tool(), asked]
        self._history = [*messages, _said(f"ticket {nonce}")]
        tools = {"tools": [TOOL], "tool_choice": "none"} if self.family.tools else {}
        model = {"model": self.model} if self.model else {}
        return {**body, **tools, **model, "messages": messages}, nonce

    def _opening(self) -> str | list[dict[str, Any]]:
        text = f"{self.beginning}You are agent {self._name}."
        if not self.shows:
            return text
        return [picture(self.chance), {"type": "text", "text": text}]

    def _use_of_a_tool(self) -> Sequence[dict[str, Any]]:
        city = self.chance.choice(CITIES)
        asked = {"role": "user", "content": f"How is the weather in {city}?"}
        if not self.family.tools:
            return [asked, _said(f"In {city}: {self.tool_result}")]
        call = {
            "id": f"call{self.chance.getrandbits(20):05x}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
        }
        return [
            asked,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": self.tool_result},
            _said(f"It snows in {city}."),
        ]


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}
