"""The Responses API: writing a conversation in it, and the meaning of an answer.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.dialects.notation import NoPlace, text, text_of, texts_of, usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH = "/v1/responses"
# Fields that are the same in both APIs, with vLLM's extensions.
ALIKE = ("temperature", "parallel_tool_calls", "chat_template_kwargs")
ENDS = {"completed": "stop", "incomplete": "length"}
METADATA = {"asked_by": "pytest-vllm-gates"}
"""Metadata of every request, which its response repeats."""


def request(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat request for the Responses API; raises `NoPlace` if a part has no place."""
    if chat.get("stop"):
        raise NoPlace("the Responses API has no stop strings")
    messages = list(chat["messages"])
    body: dict[str, Any] = {"store": False, "metadata": dict(METADATA)}
    if len(messages) > 1 and messages[0]["role"] == "system":
        content = messages[0]["content"]
        if isinstance(content, str):
            body["instructions"] = content
            messages = messages[1:]
    body["input"] = [item for number, each in enumerate(messages) for item in _items(number, each)]
    body["max_output_tokens"] = chat["max_tokens"]
    body |= {name: chat[name] for name in ALIKE if name in chat}
    if chat.get("tools"):
        body["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
    if shape := chat.get("response_format"):
        body["text"] = {"format": {"type": shape["type"], **shape["json_schema"]}}
    choice = chat.get("tool_choice")
    if isinstance(choice, dict):
        body["tool_choice"] = {"type": "function", "name": choice["function"]["name"]}
    elif choice:
        body["tool_choice"] = choice
    return body


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function["parameters"],
        "strict": None,
    }


def _items(number: int, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the input items of one chat message."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        output = content if isinstance(content, str) else _parts(content)
        yield {
            "type": "function_call_output", "call_id": message["tool_call_id"], "output": output,
        }  # fmt: skip
        return
    if role != "assistant":
        texts = content if isinstance(content, str) else _parts(content)
        yield {"type": "message", "role": role, "content": texts}
        return
    if reasoning := message.get("reasoning"):
        yield {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": reasoning}],
        }
    if content:
        yield {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{number}",
            "status": "completed",
            "content": [{"type": "output_text", "text": text_of(content), "annotations": []}],
        }
    for place, call in enumerate(message.get("tool_calls") or ()):
        yield {
            "type": "function_call",
            "id": f"fc_{number}_{place}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }


def _parts(content: Any) -> list[dict[str, str]]:
    return [{"type": "input_text", "text": text} for text in texts_of(content)]


def answer(body: Mapping[str, Any]) -> Answer:
    """Return the meaning of a response; raises `ValueError` and similar if it is unreadable."""
    reasoning = content = ""
    calls: list[ToolCall] = []
    for item in body["output"]:
        kind = item["type"]
        if kind == "reasoning":
            reasoning += "".join(text(part["text"]) for part in item.get("content") or ())
        elif kind == "message":
            content += "".join(text(part.get("text")) for part in item["content"])
        elif kind == "function_call":
            calls.append(
                ToolCall(text(item["name"]), text(item["arguments"]), text(item["call_id"]))
            )
    status = body["status"]
    finish = ENDS.get(status, status)
    return Answer(
        reasoning=reasoning,
        content=content,
        tool_calls=tuple(calls),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=usage(body.get("usage"), ("input_tokens",), "output_tokens"),
    )
