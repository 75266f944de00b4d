"""Calls whose one argument is a text that parsers trip over, as a family writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.conversations.forced_calls import (
    NAME,
    Forced,
    Wanted,
    closing,
    force,
    in_json,
    request,
    tools_of,
)
from pytest_vllm_gates.facts.reply import HostileTexts

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family, Tools
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.server.types import Endpoint

TEXTS = data.FOLDER / "hostile.toml"
LONG_WORD = " lighthouse"
LONG_WORDS = 200
PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def hostile_calls(chat: Chat, endpoint: Endpoint, family: Family) -> Forced:
    """Have every hostile text written as the argument of a call; raises as `force` does.

    Raises `NotApplicable` for a family without tools or that cannot answer without thinking.
    """
    tools = tools_of(family)
    texts = {
        one.name: _filled(one.text, family) * one.times
        for one in toml.load(TEXTS, HostileTexts).texts
    }
    return force(chat, endpoint, family, [_wanted(tools, *one) for one in texts.items()])


def long_call(endpoint: Endpoint, family: Family) -> dict[str, Any]:
    """Return the request for a call with one long argument; raises as `hostile_calls` does."""
    wanted = _wanted(tools_of(family), "long", LONG_WORD * LONG_WORDS)
    return request(endpoint, family, wanted)


def _wanted(tools: Tools, name: str, text: str) -> Wanted:
    exact = "ARGUMENTS" in tools.call or _carries(tools, text)
    return Wanted(name, _call(tools, text), {"text": text}, PARAMETERS, exact)


def _call(tools: Tools, text: str) -> str:
    """Return a call as the family writes it."""
    if written := in_json(tools, {"text": text}):
        return written
    return tools.call.replace("NAME", NAME).replace("KEY", "text").replace("VALUE", text)


def _carries(tools: Tools, text: str) -> bool:
    """Return whether text between tags comes out again: not where it holds the tags themselves."""
    return not any(marker.strip() in text for marker in tools.markers)


def _filled(text: str, family: Family) -> str:
    tools = tools_of(family)
    opening = tools.call.strip().partition(">")[0] + ">"
    words = {"open": opening, "close": closing(tools), "stop": family.prompt.stop_tokens[0]}
    for word, meant in words.items():
        text = text.replace(f"${{{word}}}", meant)
    return text
