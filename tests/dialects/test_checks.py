"""Faults between dialects, and differences that are allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dialects.made import (
    ANSWER,
    CONTENT,
    MESSAGE,
    RESPONSE,
    dialogues,
    events,
    reply,
)
from pytest_vllm_gates.client.answer import Usage
from pytest_vllm_gates.dialects import checks, identity

WHOLES = (reply("responses", "whole", RESPONSE), reply("messages", "whole", MESSAGE))
STREAMS = (reply("responses", "stream", RESPONSE), reply("messages", "stream", MESSAGE))


def says(findings: Any) -> list[str]:
    return [finding.says for finding in findings]


def test_dialects_that_agree_have_no_finding() -> None:
    heard = dialogues(*WHOLES, *STREAMS)
    assert says(checks.meaning_findings(heard)) == []
    assert says(checks.stream_findings(heard)) == []
    assert says(checks.token_findings(heard)) == []
    assert says(checks.limit_findings(heard)) == []


def test_a_part_that_one_dialect_loses_is_reported_with_its_request() -> None:
    lost = reply("responses", "whole", {**RESPONSE, "output": RESPONSE["output"][1:]})
    (finding,) = checks.meaning_findings(dialogues(lost))
    assert finding.says == "reasoning: empty in the responses answer, 'They ask.' in the chat one"
    assert finding.case.traits == {"dialect": "responses", "mode": "whole", "case": "plain"}
    assert finding.case.request == {"question": 1}


def test_a_stream_that_differs_from_its_whole_answer_is_reported() -> None:
    other = {**MESSAGE, "content": [*MESSAGE["content"][:1], *MESSAGE["content"][2:]]}
    heard = dialogues(WHOLES[1], reply("messages", "stream", other))
    (finding,) = checks.stream_findings(heard)
    assert finding.says == "content: empty in the streamed answer, 'Paris.' in the whole one"


def test_a_named_call_that_the_chat_ends_with_stop_is_the_same() -> None:
    chat = replace(ANSWER, finish_reason="stop")
    assert says(checks.meaning_findings(dialogues(*WHOLES, chat=chat))) == []


def test_a_stop_sequence_that_is_not_reported_is_a_finding() -> None:
    chat = replace(ANSWER, stop_reason="Par")
    (finding,) = checks.meaning_findings(dialogues(WHOLES[1], chat=chat))
    assert finding.says == "stop string: chat 'Par', messages None"
    assert says(checks.meaning_findings(dialogues(WHOLES[0], chat=chat))) == []


def test_an_answer_that_differs_from_a_near_tie_on_is_not_compared() -> None:
    other = {**MESSAGE, "content": [{"type": "text", "text": "Pantheon."}]}
    chat = replace(ANSWER, reasoning="", tool_calls=(), finish_reason="tool_calls")
    heard = dialogues(reply("messages", "whole", other), chat=chat, near_tie=True)
    assert says(checks.meaning_findings(heard)) == []
    heard = dialogues(reply("messages", "whole", other), chat=chat, near_tie=False)
    assert says(checks.meaning_findings(heard)) != []


def test_a_text_that_a_format_forces_is_compared_at_a_near_tie_too() -> None:
    other = {**MESSAGE, "content": [{"type": "text", "text": "Pantheon."}]}
    chat = replace(ANSWER, reasoning="", tool_calls=(), finish_reason="tool_calls")
    heard = dialogues(reply("messages", "whole", other), chat=chat, near_tie=True)
    (held,) = heard.dialogues
    formatted = {**held.chat_request, "response_format": {"type": "json_schema"}}
    heard = replace(heard, dialogues=(replace(held, chat_request=formatted),))
    assert len(says(checks.meaning_findings(heard))) == 1


def test_an_answer_to_other_tokens_is_not_compared_if_it_differs() -> None:
    usage = {**RESPONSE["usage"], "input_tokens": 6}
    item = {**RESPONSE["output"][1], "content": [{"type": "output_text", "text": "Pantheon."}]}
    output = [RESPONSE["output"][0], item, RESPONSE["output"][2]]
    other = reply("responses", "whole", {**RESPONSE, "output": output, "usage": usage})
    assert says(checks.meaning_findings(dialogues(other))) == []
    assert says(checks.token_findings(dialogues(other))) == [
        "input tokens: chat 5, responses 6 (+1)"
    ]
    lost = reply("responses", "whole", {**RESPONSE, "output": output[1:], "usage": usage})
    chat = replace(ANSWER, content="Pantheon.")
    assert len(says(checks.meaning_findings(dialogues(lost, chat=chat)))) == 1


def test_a_lost_text_is_a_finding_at_a_near_tie_too() -> None:
    other = {**MESSAGE, "content": MESSAGE["content"][1:]}
    heard = dialogues(reply("messages", "whole", other), near_tie=True)
    assert len(says(checks.meaning_findings(heard))) == 1


def test_tokens_that_are_counted_differently_are_reported() -> None:
    more = {**RESPONSE, "usage": {**RESPONSE["usage"], "input_tokens": 6}}
    less = {**MESSAGE, "usage": {"input_tokens": 5, "output_tokens": 2}}
    none = {**MESSAGE, "usage": None}
    heard = dialogues(
        reply("responses", "whole", more),
        reply("messages", "whole", less),
        reply("messages", "stream", none),
    )
    assert says(checks.token_findings(heard)) == [
        "input tokens: chat 5, responses 6 (+1)",
        "output tokens: chat 9, messages 2",
        "usage is missing",
    ]


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ((1, 2, 3, 4, 5), None),
        ((1, 1, 2, 3, 4, 5), "the prompt's first token comes twice"),
        ((1, 2, 9, 4, 5), "the prompt's tokens differ from token 2 on"),
        ((1, 2), "tokens of the prompt: chat 5, /render 2"),
    ],
)
def test_a_route_that_renders_other_tokens_is_reported(
    ids: tuple[int, ...], sentence: str | None
) -> None:
    heard = dialogues(counts={"/render": len(ids)}, rendered={"/render": ids})
    assert says(checks.token_findings(heard)) == ([sentence] if sentence else [])


def test_a_temperature_that_was_not_requested_is_reported() -> None:
    heard = dialogues(counts={"/render": 5}, sampling={"/render": {"temperature": 1.0}})
    assert says(checks.token_findings(heard)) == ["temperature 0 was requested, 1.0 is in effect"]
    heard = dialogues(counts={"/render": 5}, sampling={"/render": {"temperature": 0.0}})
    assert says(checks.token_findings(heard)) == []


def test_a_route_that_only_counts_is_compared() -> None:
    heard = dialogues(counts={"/count": 4})
    assert says(checks.token_findings(heard)) == ["tokens of the prompt: chat 5, /count 4"]


@pytest.mark.parametrize(
    ("dialect", "body", "sentence"),
    [
        ("messages", {**MESSAGE, "stop_reason": "max_tokens"}, None),
        ("messages", MESSAGE, "the limit cut it, and it ends in stop_reason 'tool_use'"),
        ("responses", RESPONSE, "the limit cut it, and it ends in status 'completed'"),
        (
            "responses",
            {**RESPONSE, "status": "incomplete", "output": []},
            "incomplete_details.reason is None, not 'max_output_tokens'",
        ),
        (
            "messages",
            {**MESSAGE, "usage": {"input_tokens": 5, "output_tokens": 12}},
            "the answer has 12 tokens, and the limit is 9",
        ),
    ],
)
def test_a_limit_is_to_be_reported(
    dialect: str, body: dict[str, Any], sentence: str | None
) -> None:
    heard = dialogues(reply(dialect, "whole", body), limit=9)
    assert says(checks.limit_findings(heard)) == ([sentence] if sentence else [])


def test_calls_that_the_limit_cut_are_not_compared() -> None:
    cut = {**MESSAGE, "content": MESSAGE["content"][:2], "stop_reason": "max_tokens"}
    assert says(checks.meaning_findings(dialogues(reply("messages", "whole", cut), limit=9))) == []


def test_a_completion_has_the_chats_tokens_and_texts() -> None:
    chat = replace(ANSWER, token_ids=(1, 2))
    choice = {"text": f"They ask.</think>{CONTENT}", "finish_reason": "stop", "token_ids": [1, 2]}
    usage = {"prompt_tokens": 5, "completion_tokens": 9}

    def heard(**change: Any) -> list[str]:
        body = {"choices": [{**choice, **change}], "usage": usage}
        found = dialogues(reply("completions", "whole", body), chat=chat)
        return says(checks.meaning_findings(found))

    assert heard() == []
    assert heard(text="They ask.") == ["content: 'Paris.' is not in the text 'They ask.'"]
    assert heard(token_ids=[1, 3]) == ["tokens: chat (1, 2), completions (1, 3)"]
    assert heard(finish_reason="length") == ["finish_reason: chat 'stop', completions 'length'"]
    assert heard(stop_reason="so") == ["stop string: chat None, completions 'so'"]
    assert heard(stop_reason=151645) == []


def test_an_answer_that_the_official_client_cannot_read_is_reported() -> None:
    broken = reply("messages", "stream", {}, complaint="IndexError: list index out of range")
    assert checks.unread(broken) == (
        "the official client raises IndexError: list index out of range"
    )
    assert checks.unread(reply("messages", "stream", {})) == (
        "the official client reads no answer in it"
    )
    assert checks.unread(WHOLES[0]) is None


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        (RESPONSE, []),
        ({**RESPONSE, "model": "m-1"}, []),
        ({**RESPONSE, "model": "x"}, ["model: 'm' was requested, the answer names 'x'"]),
        ({**RESPONSE, "id": ""}, ["the answer has no id"]),
        ({"output": []}, ["the answer names no model"]),
        (
            {**RESPONSE, "created_at": 1_795_000_000_000},
            ["created_at is 1795000000000: expected seconds since 1970"],
        ),
        (
            {**RESPONSE, "temperature": 1.0},
            ["temperature: 0 was requested, and the response has 1.0"],
        ),
        ({**RESPONSE, "tools": [{}]}, ["0 tools were declared, and the response has 1"]),
        (
            {**RESPONSE, "incomplete_details": {"reason": "x"}},
            ["the response is completed, and has incomplete_details: {'reason': 'x'}"],
        ),
        (
            {**RESPONSE, "error": {"code": "x"}},
            ["the response is completed, and has error: {'code': 'x'}"],
        ),
        ({**RESPONSE, "status": "failed", "error": {"code": "x"}}, []),
        (
            {**RESPONSE, "output": [{**RESPONSE["output"][2], "status": "in_progress"}]},
            ["the response is completed, and its function_call item has the status 'in_progress'"],
        ),
        (
            {
                **RESPONSE,
                "usage": {**RESPONSE["usage"], "output_tokens_details": {"reasoning_tokens": 0}},
            },
            ["usage counts no reasoning_tokens, and the answer has reasoning"],
        ),
    ],
)
def test_an_answer_names_its_model(body: dict[str, Any], faults: list[str]) -> None:
    answered = replace(reply("responses", "whole", body), request={"temperature": 0})
    assert list(identity.faults(answered, ["m", "m-1"])) == faults


@pytest.mark.parametrize(
    ("requested", "answered", "faults"),
    [
        ({"text": {"format": {"type": "json_schema"}}}, {"text": None}, []),
        (
            {"text": {"format": {"type": "json_schema"}}},
            {"text": {"format": {"type": "text"}}},
            ["text.format.type: 'json_schema' was requested, and the response has 'text'"],
        ),
        ({}, {"reasoning": {"effort": "high"}}, []),
        (
            {"reasoning": {"effort": "none"}},
            {"reasoning": {"effort": "high"}},
            ["reasoning.effort: 'none' was requested, and the response has 'high'"],
        ),
    ],
)
def test_a_response_repeats_nested_settings(
    requested: dict[str, Any], answered: dict[str, Any], faults: list[str]
) -> None:
    body = {**RESPONSE, **answered}
    answer = replace(reply("responses", "whole", body), request=requested)
    assert list(identity.faults(answer, ["m"])) == faults


def test_the_chunks_of_a_completion_belong_to_one_stream() -> None:
    def chunk(name: str, finish: str | None) -> dict[str, Any]:
        choices = [{"text": "", "finish_reason": finish}]
        return {"type": "", "id": name, "model": "m", "created": 1, "choices": choices}

    right = reply(
        "completions",
        "stream",
        {},
        events=events([chunk("a", None), chunk("a", "stop")]),
        done=True,
    )
    assert list(checks.event_faults(right)) == []
    wrong = replace(right, events=events([chunk("a", "stop"), chunk("b", "stop")]), done=False)
    assert list(checks.event_faults(wrong)) == [
        "the stream does not end in '[DONE]'",
        "the chunks of one stream have the ids a, b",
        "2 chunks have a finish_reason",
    ]


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("responses", {"type": "response.output_text.delta", "delta": "\ud83d"}),
        ("messages", {"type": "content_block_delta", "delta": {"type": "x", "text": "\udc4b"}}),
        ("completions", {"type": "", "choices": [{"text": "so \ufffd", "finish_reason": None}]}),
    ],
)
def test_an_event_has_whole_characters(dialect: str, event: dict[str, Any]) -> None:
    split = reply(dialect, "stream", {}, events=events([event]))
    assert any("splits a character" in fault for fault in checks.event_faults(split))
    text = json.dumps(event).replace("\\ud83d", "👋").replace("\\udc4b", "👋")
    whole = json.loads(text.replace("\\ufffd", "👋"))
    right = reply(dialect, "stream", {}, events=events([whole]))
    assert not any("splits a character" in fault for fault in checks.event_faults(right))


def test_usage_that_counts_below_zero_is_not_read() -> None:
    body = {**MESSAGE, "usage": {"input_tokens": -1, "output_tokens": 2}}
    assert checks.meaning(reply("messages", "whole", body)) is None
    assert ANSWER.usage == Usage(5, 9)
