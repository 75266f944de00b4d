"""Exchanges for the tests of checks: a request and its answer in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.matrix import Cell, ConversationRule
from pytest_vllm_gates.client.answer import Answer, Exchange, ToolCall, Usage

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time"}},
]
WEATHER = ToolCall("get_weather", '{"city": "Oslo"}', "call-1")
TIME = ToolCall("get_time", "{}", "call-2")


def family(name: str) -> Family:
    """Return a shipped family."""
    return families.load(name, Path("/nowhere"))


def answer(content: str = "It is cold.", **fields: Any) -> Answer:
    """Return an answer that ended by itself."""
    defaults: dict[str, Any] = {
        "reasoning": "",
        "content": content,
        "tool_calls": (),
        "finish_reason": "tool_calls" if fields.get("tool_calls") else "stop",
        "usage": Usage(10, 20),
    }
    return Answer(**(defaults | fields))


def exchange(whole: Answer | None = None, **fields: Any) -> Exchange:
    """Return the exchange of one cell; dimensions of the matrix go into the cell."""
    dimensions = {
        "thinking": "unset", "tools": "undeclared", "format": "text", "stop": "unset",
        "turns": "single",
    }  # fmt: skip
    cell = Cell(**{name: fields.pop(name, value) for name, value in dimensions.items()})
    rule = ConversationRule(
        turns=cell.turns,
        tools=(cell.tools,),
        format=cell.format,
        conversation="plain",
        regex=fields.pop("regex", None),
        json_schema=fields.pop("json_schema", None),
    )
    fields.setdefault("request", {"messages": [{"role": "user", "content": "Hello"}]})
    more = {"thinks": cell.thinking != "off", "stop": fields.pop("stop_at", None), **fields}
    return Exchange(cell, rule, whole=whole, **more)
