"""Anthropic's Messages API: writing a conversation in it, and the meaning of an answer.

https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.dialects.notation import NoPlace, text, text_of, texts_of, usage

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
CHOICES = {"auto": "auto", "none": "none", "required": "any"}
ENDS = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
}  # fmt: skip
SIGNATURE = "c2lnbmF0dXJl"
INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
NOT_COUNTED = ("max_tokens", "temperature", "stop_sequences")


def request(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat request for the Messages API; raises `NoPlace` if a part has no place."""
    messages = list(chat["messages"])
    body: dict[str, Any] = {"max_tokens": chat["max_tokens"], "temperature": chat["temperature"]}
    if messages[0]["role"] == "system":
        content = messages.pop(0)["content"]
        body["system"] = content if isinstance(content, str) else _blocks(content)
    if not messages:
        raise NoPlace("the Messages API requires a user message after the system message")
    written: list[dict[str, Any]] = []
    for message in messages:
        turn = _turn(message)
        if written and written[-1]["role"] == turn["role"] == "user":
            written[-1]["content"] = [*_list(written[-1]["content"]), *_list(turn["content"])]
        else:
            written.append(turn)
    body["messages"] = written
    if kwargs := chat.get("chat_template_kwargs"):
        body["chat_template_kwargs"] = kwargs
    if stop := chat.get("stop"):
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if shape := chat.get("response_format"):
        schema = shape["json_schema"]["schema"]
        body["output_config"] = {"format": {"type": shape["type"], "schema": schema}}
    if chat.get("tools"):
        body["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
        if choice := _choice(chat):
            body["tool_choice"] = choice
    return body


def count_request(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that counts the tokens of a chat request's prompt."""
    return {name: value for name, value in request(chat).items() if name not in NOT_COUNTED}


def _choice(chat: Mapping[str, Any]) -> dict[str, Any]:
    choice = chat.get("tool_choice")
    written: dict[str, Any] = {}
    if isinstance(choice, dict):
        written = {"type": "tool", "name": choice["function"]["name"]}
    elif choice:
        written = {"type": CHOICES[choice]}
    if chat.get("parallel_tool_calls") is False:
        written = {"type": "auto", **written, "disable_parallel_tool_use": True}
    return written


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    if description := function.get("description"):
        tool["description"] = description
    return tool


def _turn(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
        result["content"] = content if isinstance(content, str) else _blocks(content)
        return {"role": "user", "content": [result]}
    if role == "user":
        return {"role": role, "content": content if isinstance(content, str) else _blocks(content)}
    if role != "assistant":
        raise NoPlace(f"the Messages API has no role {role!r} here")
    blocks: list[dict[str, Any]] = []
    if reasoning := message.get("reasoning"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
    if content:
        blocks.append({"type": "text", "text": text_of(content)})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": json.loads(function["arguments"] or "{}"),
            }
        )
    return {"role": role, "content": blocks}


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts_of(content)]


def _list(content: Any) -> list[dict[str, Any]]:
    return _blocks(content) if isinstance(content, str) else list(content)


def answer(body: Mapping[str, Any]) -> Answer:
    """Return the meaning of a message; raises `ValueError` and similar if it is unreadable."""
    reasoning = content = ""
    calls: list[ToolCall] = []
    for block in body["content"]:
        kind = block["type"]
        if kind == "thinking":
            reasoning += text(block["thinking"])
        elif kind == "text":
            content += text(block["text"])
        elif kind == "tool_use":
            calls.append(
                ToolCall(text(block["name"]), json.dumps(block["input"]), text(block["id"]))
            )
    stop = body.get("stop_reason")
    return Answer(
        reasoning=reasoning,
        content=content,
        tool_calls=tuple(calls),
        finish_reason=ENDS.get(str(stop), stop),
        usage=usage(body.get("usage"), INPUTS, "output_tokens"),
        stop_reason=body.get("stop_sequence"),
    )
