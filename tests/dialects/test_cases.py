"""The shipped cases: each conversation exists, and can be written in its dialects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import conversation, family as families
from pytest_vllm_gates.dialects import cases, messages, responses
from pytest_vllm_gates.dialects.cases import DialectCase

NOWHERE = Path("/nowhere")
CONVERSATIONS = conversation.load_all(NOWHERE)
QWEN = families.load("qwen3.5", NOWHERE)
WRITERS: dict[str, Any] = {"responses": responses.request, "messages": messages.request}


def request(limit: int = 100, **fields: Any) -> dict[str, Any]:
    case = DialectCase(name="a", **fields)
    chat, why_not = cases.chat_request(case, CONVERSATIONS, QWEN, limit)
    assert not why_not
    return chat


@pytest.mark.parametrize("case", cases.load(), ids=lambda case: case.name)
def test_a_case_can_be_written_in_its_dialects(case: DialectCase) -> None:
    chat, why_not = cases.chat_request(case, CONVERSATIONS, QWEN, 100)
    assert not why_not
    if case.tool_choice not in {"", "auto", "none", "required"}:
        assert case.tool_choice in [tool["function"]["name"] for tool in chat["tools"]]
    if case.stop:
        chat["stop"] = ["word"]
    for dialect in {*case.whole, *case.stream} & set(WRITERS):
        assert WRITERS[dialect](chat)
    # A stream is compared with the whole answer.
    assert set(case.stream) <= set(case.whole)


def test_cases_have_different_names() -> None:
    assert max(Counter(case.name for case in cases.load()).values()) == 1


def test_a_request_is_greedy_and_has_the_runs_limit() -> None:
    chat = request(conversation="plain")
    assert (chat["temperature"], chat["max_tokens"]) == (0, 100)
    assert request(conversation="plain", at_most=32)["max_tokens"] == 32
    assert request(limit=16, conversation="plain", at_most=32)["max_tokens"] == 16


def test_a_system_message_may_be_the_developers_or_in_parts() -> None:
    developer = request(conversation="system", developer=True)["messages"]
    assert [message["role"] for message in developer] == ["developer", "user"]
    parts = request(conversation="system", blocks=True)["messages"]
    assert [message["content"][0]["type"] for message in parts] == ["text", "text"]


def test_a_format_allows_one_text() -> None:
    shape = request(conversation="plain", format="<b>")["response_format"]
    assert shape["json_schema"]["schema"] == {"enum": ["<b>"]}


def test_a_tool_is_chosen_by_its_name() -> None:
    chat = request(conversation="tool-one", tool_choice="get_time", one_call=True)
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "get_time"}}
    assert chat["parallel_tool_calls"] is False


def test_a_family_without_tools_has_no_case_with_them() -> None:
    case = DialectCase(name="a", conversation="tool-one")
    toolless = QWEN.model_copy(update={"tools": None})
    assert cases.chat_request(case, CONVERSATIONS, toolless, 100) == (
        {},
        "qwen3.5 calls no tools",
    )
