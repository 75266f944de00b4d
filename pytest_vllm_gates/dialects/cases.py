"""The cases of `dialects.toml`: conversations, their dialects, and the request parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family

PATH = data.FOLDER / "dialects.toml"

DialectName = Literal["completions", "responses", "messages"]


class DialectCase(toml.Record):
    """One conversation, with the parameters of its request."""

    name: toml.Name
    conversation: toml.Name
    whole: tuple[DialectName, ...] = ()
    """The dialects that get a request for a whole answer."""
    stream: tuple[DialectName, ...] = ()
    """The dialects that get a request for a stream."""
    counted: bool = False
    """Whether the routes that only count and render get a request, too."""
    tool_choice: str = ""
    """`auto`, `none`, `required`, or a tool's name; empty to send none."""
    one_call: bool = False
    """Whether parallel calls are turned off."""
    short_of: int = Field(default=0, ge=0)
    """Tokens by which the limit is below the unlimited answer's tokens; 0 for the run's limit."""
    at_most: int = Field(default=0, ge=0)
    """The limit of tokens, if the prompt matters more than the answer; 0 for the run's limit."""
    stop: str = ""
    """`answer` for a word of the conversation's answer as a stop string."""
    official_switch: bool = False
    """Whether thinking is turned off by the dialect's parameter, not by the template's."""
    format: str = ""
    """The only text, as JSON, that the schema of the format allows; empty for no format."""
    developer: bool = False
    """Whether the system message is sent with the role `developer`."""
    blocks: bool = False
    """Whether texts are sent as lists of parts."""


class DialectCases(toml.Record):
    """The file."""

    cases: tuple[DialectCase, ...]


def load() -> tuple[DialectCase, ...]:
    """Return all cases."""
    return toml.load(PATH, DialectCases).cases


def chat_request(
    case: DialectCase, conversations: Sequence[Conversation], family: Family, max_tokens: int
) -> tuple[dict[str, Any], str]:
    """Return a case's request to the chat API, and the reason if the family cannot have it."""
    conversation = next(each for each in conversations if each.name == case.conversation)
    if reason := conversation.why_not(family):
        thinking = family.thinking
        if thinking is None or thinking.with_tools or not conversation.tools:
            return {}, reason
        conversation = conversation.model_copy(update={"thinking": "off"})
        if reason := conversation.why_not(family):
            return {}, reason
    body: dict[str, Any] = {
        **conversation.body(family),
        "max_tokens": min(case.at_most or max_tokens, max_tokens),
        "temperature": 0,
    }
    if case.developer:
        body["messages"] = [_as_developer(message) for message in body["messages"]]
    if case.blocks:
        body["messages"] = [_in_blocks(message) for message in body["messages"]]
    if case.tool_choice in {"auto", "none", "required"}:
        body["tool_choice"] = case.tool_choice
    elif case.tool_choice:
        body["tool_choice"] = {"type": "function", "function": {"name": case.tool_choice}}
    if case.format:
        schema = {"name": "text", "schema": {"enum": [case.format]}, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if case.one_call:
        body["parallel_tool_calls"] = False
    return body, ""


def _as_developer(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "role": "developer"} if message["role"] == "system" else dict(message)


def _in_blocks(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, str) or message["role"] == "assistant":
        return dict(message)
    return {**message, "content": [{"type": "text", "text": content}]}
