"""A request as vLLM 0.30 to 0.32 passes it to a chat template, whatever a client sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASSISTANT = "assistant"
SYSTEM = "system"
DEVELOPER = "developer"
TOOL = "tool"
IMAGE = {"type": "image"}
"""An image's part, as vLLM passes it to a template."""
IMAGE_URL = "image_url"
"""The type of a content part that is an image, as clients send it."""


def as_served(message: Mapping[str, Any], *, in_parts: bool = False) -> dict[str, Any]:
    """Return a message as vLLM passes it to a template (vllm/renderers/chat_utils).

    Content is one text, its parts joined, or else a list of parts even if the client sent a
    text; a tool's result is always a text. An image is a part of type image. The JSON text of a
    call's arguments becomes an object, an empty one if it is not an object; reasoning is also given
    under its old name; an empty list of calls and all other keys of a client are left out.
    """
    role = message["role"]
    parts = _parts(message.get("content"))
    if not in_parts:
        _refuse_images(parts)
    joined = "\n".join(part["text"] for part in parts if "text" in part)
    served: dict[str, Any] = {
        "role": role,
        "content": parts if in_parts and role != TOOL else joined,
    }
    if role == ASSISTANT:
        if message.get("tool_calls"):
            served["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _arguments(call)}}
                for call in message["tool_calls"]
            ]
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            served["reasoning"] = served["reasoning_content"] = reasoning
    if role == TOOL and "tool_call_id" in message:
        served["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        served["name"] = message["name"]
    return served


def without_developers(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as vLLM passes them to a template without a developer role.

    Developers' messages become the system's. All of the system's become one, at the start, unless
    the only one is there already (vllm/renderers/hf, `_consolidate_system_messages`).
    """
    served = [
        {**message, "role": SYSTEM if message["role"] == DEVELOPER else message["role"]}
        for message in messages
    ]
    places = [place for place, message in enumerate(served) if message["role"] == SYSTEM]
    if places == [0]:
        return served
    texts = [
        "\n".join(part["text"] for part in _parts(served[place]["content"]) if "text" in part)
        for place in places
    ]
    merged = {"role": SYSTEM, "content": "\n\n".join(filter(None, texts))}
    return [merged, *(message for message in served if message["role"] != SYSTEM)]


def tools_as_served(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return a request's tools as vLLM passes them to a template, None if there are none.

    Keys come in vLLM's order, an absent description or schema as None, and of other keys only
    `strict` and `defer_loading` are passed.
    """
    served = []
    for tool in tools or ():
        function = tool["function"]
        served.append(
            {
                "type": "function",
                "function": {
                    "name": function["name"],
                    "description": function.get("description"),
                    "parameters": function.get("parameters"),
                    **{
                        key: function[key]
                        for key in ("strict", "defer_loading")
                        if function.get(key) is not None
                    },
                },
            }
        )
    return served or None


def options_as_served(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords vLLM passes a template for a request, over the server's `defaults`.

    vLLM derives the thinking's switch from an effort, unless the switch is given.
    """
    goes_on = bool(body.get("continue_final_message"))
    kwargs = {
        key: value
        for key, value in (body.get("chat_template_kwargs") or {}).items()
        if value not in (None, "auto")
    }
    options: dict[str, Any] = {
        "add_generation_prompt": body.get("add_generation_prompt", not goes_on),
        "continue_final_message": goes_on,
    }
    if effort := body.get("reasoning_effort"):
        options["reasoning_effort"] = effort
        if "enable_thinking" not in kwargs:
            options["enable_thinking"] = effort != "none"
    return {**defaults, **kwargs, **options}


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {**part}
        for part in content or ()
    ]
    parts = [IMAGE if part.get("type") == IMAGE_URL else part for part in parts]
    if kinds := {str(part.get("type")) for part in parts if "text" not in part and part != IMAGE}:
        raise ValueError(
            f"content parts of type {', '.join(sorted(kinds))}: only texts and images are rendered"
        )
    return parts


def _refuse_images(parts: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ValueError` for an image in a request to a template of texts.

    vLLM writes the model's own placeholder for it, which no file of the checkpoint names.
    """
    if any(part == IMAGE for part in parts):
        raise ValueError("content parts of type image_url: the template takes only texts")


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    return arguments if isinstance(arguments, dict) else {}


RENDER_LIMIT_S = 10.0
AGAIN_LIMIT_S = 1.0
"""The time limit for the next conversation after an endless one."""


class OverLimit(AssertionError):  # noqa: N818 - what was found, told to a person
    """Rendering a conversation needs more than a limit allows; the text names the limit."""


class Endless(OverLimit):
    """Rendering a conversation exceeds its time."""
