"""Conversations: the request for each family, and which families do not support one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import conversation as conversations, family as families

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.family import Family

NOWHERE = Path("/nowhere")
ALL = {conversation.name: conversation for conversation in conversations.load_all(NOWHERE)}


def family(name: str) -> Family:
    return families.load(name, NOWHERE)


def conversation_with(**fields: object) -> Conversation:
    hello = {"role": "user", "content": "Hello"}
    return conversations.Conversation.model_validate(
        {"name": "c", "title": "t", "messages": (hello,), **fields}
    )


def test_plain_conversation_sends_only_its_messages() -> None:
    assert list(conversation_with().body(family("qwen3.5"))) == ["messages"]


@pytest.mark.parametrize(
    ("name", "switch"), [("qwen3.5", "enable_thinking"), ("deepseek", "thinking")]
)
def test_thinking_is_set_by_the_switch_of_the_family(name: str, switch: str) -> None:
    body = conversation_with(thinking="off").body(family(name))
    assert body["chat_template_kwargs"] == {switch: False}


def test_content_parts_are_sent_unchanged() -> None:
    hello = {"role": "assistant", "content": None, "tool_calls": [{"index": 0}]}
    assert conversation_with(messages=(hello,)).body(family("qwen3.5"))["messages"] == [hello]


def test_effort_is_sent_as_reasoning_effort() -> None:
    assert conversation_with(effort="low").body(family("deepseek"))["reasoning_effort"] == "low"


def test_continued_answer_adds_no_generation_prompt() -> None:
    body = ALL["assistant-last"].body(family("qwen3.5"))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_text_is_filled_with_the_markers_of_the_family() -> None:
    for name, marker in (("qwen3.5", "<|im_end|>"), ("gemma", "<turn|>")):
        (message,) = ALL["quotes-special"].body(family(name))["messages"]
        assert marker in message["content"]
        assert "${" not in message["content"]


def test_a_long_prompt_is_a_short_file() -> None:
    (message,) = conversation_with(repeat_last=1000).body(family("qwen3.5"))["messages"]
    assert message["content"] == "Hello" * 1000


@pytest.mark.parametrize(
    ("conversation", "name", "reason"),
    [
        ("thinking-on", "gemma/3", "has no thinking switch"),
        ("thinking-on", "deepseek/r1", "has no thinking switch"),
        ("tool-one", "gemma/3", "calls no tools"),
        ("effort-low", "qwen3.5", "does not have the reasoning effort 'low'"),
    ],
)
def test_unsupported_conversation_has_a_reason(conversation: str, name: str, reason: str) -> None:
    assert reason in str(ALL[conversation].why_not(family(name)))


def test_thinking_is_off_if_the_family_cannot_think_and_call() -> None:
    tools = ALL["tool-one"]
    assert tools.why_not(family("deepseek")) is None, "its default is not to think"
    thinking = tools.model_copy(update={"thinking": "on"})
    assert "while it thinks" in str(thinking.why_not(family("deepseek")))


def test_every_family_supports_most_plain_conversations() -> None:
    plain = [conversation for conversation in ALL.values() if not conversation.tools]
    for candidate in families.load_all(NOWHERE):
        fitting = [
            conversation for conversation in plain if conversation.why_not(candidate) is None
        ]
        assert len(fitting) >= len(plain) * 2 // 3, candidate.name
