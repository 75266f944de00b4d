"""Requests for formats, tools, choices and continuations show which parameter is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog import conversation as conversations
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.form import Malformed
from pytest_vllm_gates.conversations import choices, chosen_tools, continued, formats, limits
from pytest_vllm_gates.outcomes import NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

CONVERSATIONS = {each.name: each for each in conversations.load_all(Path("/nowhere"))}


def says(_: dict[str, Any]) -> Generation:
    return Generation("It is cold in Oslo today.", "")


def test_formats_are_sent_with_thinking_and_tools(qwen: Family) -> None:
    with running(ScriptedModel(says)) as server:
        answers = formats.ask(Chat(server.endpoint, qwen), qwen, CONVERSATIONS, 50)
    kinds = [(each.format, each.traits["tools"], each.traits["thinking"]) for each in answers]
    assert len(answers) == 16 and len({each.name for each in answers}) == 16
    assert {kind for kind, *_ in kinds} == {"enum", "regex", "object"}
    assert ("enum", "auto", "on") in kinds and ("enum", "undeclared", "off") in kinds
    assert all(each.request["max_tokens"] == 50 for each in answers)


def test_a_strict_tool_requires_another_city_than_the_question(qwen: Family) -> None:
    body = CONVERSATIONS["tool-one"].body(qwen)
    with running(ScriptedModel(says)) as server:
        answers = chosen_tools.ask(Chat(server.endpoint, qwen), server.endpoint, body, 500)
    assert [each.traits["tools"] for each in answers[::2]] == ["auto", "required", "named", "other"]
    for each in answers[:6]:
        assert each.request["tools"][0]["function"]["strict"] is True
        assert each.request["max_tokens"] == chosen_tools.TOKENS
        assert each.raw == "It is cold in Oslo today."
    assert answers[-1].request["tool_choice"]["function"]["name"] == "get_time"
    assert "strict" not in body["tools"][0]["function"]


def test_an_answer_is_continued_with_each_value_of_the_switch(qwen: Family) -> None:
    with running(ScriptedModel(says)) as server:
        answers = continued.ask(
            Chat(server.endpoint, qwen), server.endpoint, qwen, CONVERSATIONS["assistant-last"], 9
        )
    assert [each.name for each in answers[::2]] == [
        "thinking unset, whole", "thinking on, whole", "thinking off, whole",
    ]  # fmt: skip
    assert all(each.begun == "The capital of France is" for each in answers)
    assert all(each.request["continue_final_message"] for each in answers)


def test_a_limit_is_set_by_each_name(qwen: Family) -> None:
    body = {**CONVERSATIONS["two-lines"].body(qwen), "max_tokens": 500}
    with running(ScriptedModel(says)) as server:
        chat = Chat(server.endpoint, qwen)
        plain = chat.ask(body)
        answers = limits.limits_by_name(chat, body, plain)
    assert plain.usage
    half = plain.usage.completion_tokens // 2
    wanted = [
        {"max_tokens": half}, {"max_completion_tokens": half},
        {"max_tokens": half - limits.BOTH, "max_completion_tokens": half},
    ]  # fmt: skip
    names = ("max_tokens", "max_completion_tokens")
    sent = [{key: each.request[key] for key in names if key in each.request} for each in answers]
    assert sent == [limit for limit in wanted for _ in range(2)]
    assert [each.least for each in answers] == [None] * 4 + [half - limits.BOTH] * 2


@pytest.mark.parametrize("kind", ["one choice", "3 choices"])
def test_choices_are_requested_whole_and_streamed(kind: str, qwen: Family) -> None:
    with running(ScriptedModel(says)) as server:
        answers = choices.ask(server.endpoint, CONVERSATIONS["plain"].body(qwen), 40)
    (found,) = [each for each in answers if each.name == kind]
    assert found.requests == 2
    assert found.request["max_tokens"] == 40
    assert all(max(map(ord, text)) > 0xFFFF for text in choices.TEXTS)
    assert [choice.content for choice in found.whole] == [
        choice.content for choice in found.streamed
    ]


def test_a_model_that_always_thinks_gets_no_request_for_shaped_choices(qwen: Family) -> None:
    with running(ScriptedModel(says)) as server:
        body = CONVERSATIONS["plain"].body(qwen)
        (one,) = choices.ask(server.endpoint, body, 40, shaped=False)
    assert one.name == "one choice"
    assert "structured_outputs" not in one.request


def test_choices_that_are_refused_are_not_applicable(qwen: Family) -> None:
    def refuses(body: dict[str, Any]) -> Generation:
        return Generation(status=400 if body.get("n") else 200)

    body = CONVERSATIONS["plain"].body(qwen)
    with (
        running(ScriptedModel(refuses)) as server,
        pytest.raises(NotApplicable, match=r"^the server refuses 3 choices with logprobs"),
    ):
        choices.ask(server.endpoint, body, 40)


@pytest.mark.parametrize("instead", [{"choices": 7}, {"choices": [{"index": 0}]}, [], "<html>"])
def test_choices_of_another_form_are_malformed(instead: Any, qwen: Family) -> None:
    with (
        running(ScriptedModel(lambda _: Generation(instead=instead))) as server,
        pytest.raises(Malformed, match=r"^the answer is not as in the API"),
    ):
        choices.ask(server.endpoint, CONVERSATIONS["plain"].body(qwen), 40)


class SwappingModel(ScriptedModel):
    """Answers with two choices; the first `swaps` streams have them in the other order."""

    def __init__(self, swaps: int) -> None:
        super().__init__(says)
        self.swaps = swaps

    def _chat(self, body: dict[str, Any], _: Generation) -> Any:
        texts = {0: "red", 1: "band"}
        if body.get("stream") and self.swaps:
            self.swaps -= 1
            texts = {0: "band", 1: "red"}
        parts = {
            index: {"role": "assistant", "content": text, "token_ids": self.ids(text)}
            for index, text in texts.items()
        }
        pieces = [
            {
                "index": index,
                "delta" if body.get("stream") else "message": part,
                "token_ids": part["token_ids"],
                "finish_reason": "stop",
            }
            for index, part in parts.items()
        ]
        return 200, [{"choices": pieces}] if body.get("stream") else {"choices": pieces}


@pytest.mark.parametrize(("swaps", "requests"), [(0, 2), (1, 3), (9, 1 + choices.TIMES)])
def test_a_stream_in_another_order_is_requested_again(
    swaps: int, requests: int, qwen: Family
) -> None:
    with running(SwappingModel(swaps)) as server:
        (one,) = choices.ask(server.endpoint, CONVERSATIONS["plain"].body(qwen), 40, shaped=False)
    assert one.requests == requests
    in_order = [choice.content for choice in one.streamed] == ["red", "band"]
    assert in_order == (swaps < choices.TIMES)
