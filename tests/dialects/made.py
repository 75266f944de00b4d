"""Streams and bodies of the dialects from a healthy server."""

from __future__ import annotations

from typing import Any

from pytest_vllm_gates.client.answer import Answer, ToolCall, Usage
from pytest_vllm_gates.dialects.types import Dialogues, Event, HeldDialogue, Reply

REASONING, CONTENT = "They ask.", "Paris."
ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": REASONING}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": CONTENT, "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": '{"city": "Oslo"}',
        "status": "completed",
    },
]
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_795_000_000,
    "model": "m",
    "status": "completed",
    "output": ITEMS,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "temperature": 0.0,
    "top_p": 1.0,
    "usage": {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 14,
    },
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": REASONING, "signature": "s"},
        {"type": "text", "text": CONTENT},
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 9},
}
ANSWER = Answer(
    reasoning=REASONING,
    content=CONTENT,
    tool_calls=(ToolCall("get_weather", '{"city":"Oslo"}', "c"),),
    finish_reason="tool_calls",
    usage=Usage(5, 9),
)
TEXTS = {
    "reasoning": ("response.reasoning_text", "text"),
    "message": ("response.output_text", "text"),
    "function_call": ("response.function_call_arguments", "arguments"),
}


def response_events() -> list[dict[str, Any]]:
    """Return the data of the events that stream `RESPONSE`."""
    begun = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
    data: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(ITEMS):
        kind, name = TEXTS[item["type"]]
        place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        text = item.get("arguments") or item["content"][0]["text"]
        added: dict[str, Any] = {**item, "status": "in_progress"}
        name_of_begun = "arguments" if "arguments" in item else "content"
        added[name_of_begun] = type(item[name_of_begun])()
        data.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if "content" in item:
            place["content_index"] = 0
            part = {**item["content"][0], "text": ""}
            data.append({"type": "response.content_part.added", **place, "part": part})
        halves = (text[:3], text[3:])
        extra: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
        data += [{"type": f"{kind}.delta", **place, "delta": half, **extra} for half in halves]
        more = {"name": item["name"]} if "arguments" in item else extra
        data.append({"type": f"{kind}.done", **place, name: text, **more})
        if "content" in item:
            part = item["content"][0]
            data.append({"type": "response.content_part.done", **place, "part": part})
        data.append({"type": "response.output_item.done", "output_index": index, "item": item})
    data.append({"type": "response.completed", "response": RESPONSE})
    return [{**event, "sequence_number": number} for number, event in enumerate(data)]


def message_events() -> list[dict[str, Any]]:
    """Return the data of the events that stream `MESSAGE`."""
    usage = {"input_tokens": 5, "output_tokens": 0}
    begun = {**MESSAGE, "content": [], "stop_reason": None, "usage": usage}
    delta = "content_block_delta"
    return [
        {"type": "message_start", "message": begun},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": REASONING}},
        {"type": delta, "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": delta, "index": 1, "delta": {"type": "text_delta", "text": CONTENT}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {
                "type": "tool_use", "id": "call_1", "name": "get_weather", "input": {},
            },
        },
        {
            "type": delta,
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'},
        },
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]  # fmt: skip


def events(data: list[dict[str, Any]]) -> tuple[Event, ...]:
    """Return events that are named by their types."""
    return tuple(Event(each["type"], each) for each in data)


def reply(dialect: str, mode: str, body: dict[str, Any], **more: Any) -> Reply:
    """Return an answered reply with this meaning."""
    return Reply(
        dialect=dialect,
        mode=mode,
        case="plain",
        request={"question": 1},
        status=200,
        body=body if mode == "whole" else {},
        assembled=body,
        **more,
    )


def dialogues(*replies: Reply, chat: Answer = ANSWER, **more: Any) -> Dialogues:
    """Return one dialogue with these replies."""
    fields: dict[str, Any] = {"prompt_ids": (1, 2, 3, 4, 5), "near_tie": False, **more}
    held = HeldDialogue(
        "plain", {"max_tokens": 100, "temperature": 0}, chat, replies=replies, **fields
    )
    return Dialogues((held,), {}, 1, 0.1, ("m",))
