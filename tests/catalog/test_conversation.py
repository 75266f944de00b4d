"""Conversations: the request each becomes for a family, and which family cannot have it."""

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


def made(**given: object) -> Conversation:
    hello = {"role": "user", "content": "Hello"}
    return conversations.Conversation.model_validate(
        {"name": "c", "title": "t", "messages": (hello,), **given}
    )


def test_a_plain_conversation_sends_its_messages_and_nothing_else() -> None:
    assert list(made().body(family("qwen3.5"))) == ["messages"]


@pytest.mark.parametrize(
    ("name", "switch"), [("qwen3.5", "enable_thinking"), ("deepseek", "thinking")]
)
def test_thinking_is_asked_for_by_the_familys_own_switch(name: str, switch: str) -> None:
    body = made(thinking="off").body(family(name))
    assert body["chat_template_kwargs"] == {switch: False}


def test_what_is_no_text_is_sent_as_it_is() -> None:
    hello = {"role": "assistant", "content": None, "tool_calls": [{"index": 0}]}
    assert made(messages=(hello,)).body(family("qwen3.5"))["messages"] == [hello]


def test_an_effort_is_asked_for_as_the_api_spells_it() -> None:
    assert made(effort="low").body(family("deepseek"))["reasoning_effort"] == "low"


def test_an_answer_to_be_continued_asks_for_no_new_turn() -> None:
    body = ALL["assistant-last"].body(family("qwen3.5"))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_a_text_quotes_the_familys_own_markers() -> None:
    for name, marker in (("qwen3.5", "<|im_end|>"), ("gemma", "<turn|>")):
        (message,) = ALL["quotes-special"].body(family(name))["messages"]
        assert marker in message["content"]
        assert "${" not in message["content"]


def test_a_long_prompt_is_a_short_file() -> None:
    (message,) = made(repeat_last=1000).body(family("qwen3.5"))["messages"]
    assert message["content"] == "Hello" * 1000


@pytest.mark.parametrize(
    ("conversation", "name", "said"),
    [
        ("thinking-on", "gemma/3", "has no thinking switch"),
        ("thinking-on", "deepseek/r1", "has no thinking switch"),
        ("tool-one", "gemma/3", "calls no tools"),
        ("effort-low", "qwen3.5", "knows no reasoning effort 'low'"),
    ],
)
def test_what_a_family_cannot_have_is_said(conversation: str, name: str, said: str) -> None:
    assert said in str(ALL[conversation].why_not(family(name)))


def test_a_family_that_calls_no_tools_while_it_thinks_is_asked_without_thinking() -> None:
    tools = ALL["tool-one"]
    assert tools.why_not(family("deepseek")) is None, "its default is not to think"
    thinking = tools.model_copy(update={"thinking": "on"})
    assert "while it thinks" in str(thinking.why_not(family("deepseek")))


def test_every_family_can_have_most_conversations_without_tools() -> None:
    plain = [conversation for conversation in ALL.values() if not conversation.tools]
    for entry in families.every(NOWHERE):
        fitting = [conversation for conversation in plain if conversation.why_not(entry) is None]
        assert len(fitting) >= len(plain) * 2 // 3, entry.name
