"""Sends questions by the openai client and reads the answers, counting requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import openai

from benchmarks.contest.types import Reply, Target
from pytest_vllm_gates.catalog import conversation as conversations, family as families

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family

TIMEOUT_S = 15.0
"""The longest wait for one answer; the miniatures' longest takes about 3 s on one core."""
MAX_TOKENS = 1024
"""As in the boot gate: the faults of `tests/faults/boot.py` change answers to this limit alone.
Answers of the miniatures are shorter."""
MODELS = 3
"""The base model and so many adapters are asked, less one."""
LONGEST_CHARACTERS = 2_000
"""Longer prompts are left out of the golden answers: they are the long-context task's."""
ADAPTER_QUESTIONS = 5
SILENT = ("APITimeoutError", "APIConnectionError")
"""The client's errors where a server does not answer at all."""


def questions(family: Family, *, tools: bool | None = None) -> dict[str, dict[str, Any]]:
    """Return requests by name, of the shipped conversations that the family can have.

    `tools`: only those that declare tools, or only those that do not; all where it is None.
    """
    known = conversations.load_all(Path())
    return {
        one.name: {**one.body(family), "max_tokens": MAX_TOKENS, "temperature": 0, "seed": 0}
        for one in known
        if one.why_not(family) is None
        and (tools is None or bool(one.tools) is tools)
        and not one.continue_last
        and _size(one) <= LONGEST_CHARACTERS
    }


def _size(one: Conversation) -> int:
    return one.repeat_last * len(str(one.messages))


def family_of(target: Target) -> Family:
    """Return the family by whose file the questions are chosen."""
    return families.load(target.family, Path())


class Asker:
    """A client of a target. An error is an answer that is not the recorded one."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.requests = 0
        self.client = openai.OpenAI(
            base_url=target.base_url,
            api_key=target.key or "none",
            timeout=TIMEOUT_S,
            max_retries=0,
        )

    def model(self) -> str:
        """Return the name that is sent; raises `openai.OpenAIError` where none is listed."""
        return self.target.model or self.names()[0]

    def names(self) -> list[str]:
        """Return the names that are listed."""
        self.requests += 1
        return [model.id for model in self.client.models.list().data]

    def adapters(self) -> list[str]:
        """Return the adapters that are listed, at most `MODELS` less one."""
        self.requests += 1
        listed = self.client.models.list().data
        return sorted(one.id for one in listed if getattr(one, "parent", None))[: MODELS - 1]

    def ask(self, body: Mapping[str, Any], model: str | None = None) -> Reply:
        """Send a chat in one piece."""
        known = {"messages", "tools", "max_tokens", "temperature", "seed", "reasoning_effort"}
        extra = {name: value for name, value in body.items() if name not in known}
        direct = {name: value for name, value in body.items() if name in known}
        self.requests += 1
        try:
            answer = self.client.chat.completions.create(
                model=model or self.model(), extra_body=extra or None, **direct
            )
            return _reply(answer, body.get("tools") or ())
        except Exception as error:  # noqa: BLE001 - whatever a faulty server makes a client raise
            return Reply(f"{type(error).__name__}: {str(error)[:200]}", finish_reason="error")

    def ask_all(self, bodies: Mapping[str, Mapping[str, Any]]) -> dict[str, Reply]:
        """Ask one after the other; two requests in a row without any answer end it."""
        replies: dict[str, Reply] = {}
        silent = 0
        for name, body in bodies.items():
            replies[name] = self.ask(body)
            silent = silent + 1 if replies[name].text.startswith(SILENT) else 0
            if silent > 1:
                break
        return replies


def _reply(answer: Any, tools: Iterable[Mapping[str, Any]]) -> Reply:
    choice = answer.choices[0]
    message = choice.message
    extra = message.model_extra or {}
    reasoning = extra.get("reasoning") or extra.get("reasoning_content") or ""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    parts = [reasoning, message.content or "", *(f"{name}({given})" for name, given in calls)]
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    fits = all(_fits(schemas, name, given) for name, given in calls) if calls else None
    return Reply("\n".join(parts), message.content or "", str(choice.finish_reason or ""), fits)


def _fits(schemas: Mapping[str, Any], name: str, given: str) -> bool:
    """Return whether a call's arguments are JSON that fits the declared schema of its tool."""
    if name not in schemas:
        return False
    try:
        jsonschema.validate(json.loads(given), schemas[name] or {})
    except (ValueError, jsonschema.ValidationError):
        return False
    return True
