"""Requests calls that a model would not make by itself: by a strict schema, and by name."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai

from pytest_vllm_gates.client import http
from pytest_vllm_gates.conversations.walk import AT_A_TIME
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.client.answer import Answer
    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint

CITY = "Ulaanbaatar"
STRICT_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": [CITY]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOKENS = 128


@dataclass(frozen=True)
class ChosenTool:
    """The answer to one request for a call."""

    name: str
    strict: bool
    """Whether the call has to follow the tool's schema."""
    traits: Mapping[str, str]
    request: Mapping[str, Any]
    answer: Answer
    raw: str
    """The text of its tokens; '' if the server returns none."""


def ask(
    chat: Chat, endpoint: Endpoint, body: Mapping[str, Any], max_tokens: int
) -> list[ChosenTool]:
    """Send a question about the weather; the first tool takes a city, the second nothing.

    Raises `NotApplicable` if the server refuses the requests.
    """
    limited = {**body, "max_tokens": min(TOKENS, max_tokens), "return_token_ids": True}

    def asked(wanted: tuple[str, str, dict[str, Any]]) -> ChosenTool:
        tools, mode, request = wanted
        answer = chat.stream(request) if mode == "streamed" else chat.ask(request)
        raw = http.detokenize(endpoint, answer.token_ids) if answer.token_ids else ""
        strict = tools != "other"
        traits = {"tools": tools, "answer": mode, "strict": str(strict).lower()}
        name = ", ".join(f"{key} {value}" for key, value in traits.items())
        return ChosenTool(name, strict, traits, request, answer, raw)

    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(asked, _wanted(limited)))
    except openai.BadRequestError as error:
        raise NotApplicable(f"the server refuses strict tools: {error.message}") from error


def _wanted(body: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    first, second = (tool["function"]["name"] for tool in body["tools"])
    strict = copy.deepcopy(list(body["tools"]))
    strict[0]["function"] |= {"strict": True, "parameters": STRICT_PARAMETERS}
    requests: dict[str, dict[str, Any]] = {
        "auto": {"tools": strict, "tool_choice": "auto"},
        "required": {"tools": strict[:1], "tool_choice": "required"},
        "named": {"tools": strict, "tool_choice": _named(first)},
        "other": {"tool_choice": _named(second)},
    }
    for tools, more in requests.items():
        for mode in ("whole", "streamed"):
            yield tools, mode, {**body, **more}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}
