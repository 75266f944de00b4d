"""Expectations are parsed, and judged on the answer as it arrived."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vllm_gates.client.exchange import Sent
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.incidents.expectation import (
    FORMS,
    Expectation,
    broken,
    completion,
    expects_error,
    parse,
    parse_all,
)

CALL = {"index": 0, "function": {"name": "look_up", "arguments": '{"a": 1}'}}

MORE = {"index": 0, "function": {"arguments": "}"}}


def sent(*answers: Any, status: int = 200, error: str = "", streamed: bool = False) -> Sent:
    if streamed:
        texts = [
            f"data: {json.dumps(answer) if answer != 'DONE' else '[DONE]'}\n\n"
            for answer in answers
        ]
    else:
        texts = [
            json.dumps(answer) if not isinstance(answer, str) else answer for answer in answers
        ]
    pieces = tuple((0.5 * at, text.encode()) for at, text in enumerate(texts, 1))
    return Sent("POST", "/v1/chat/completions", {}, b"{}", "1", status, {}, pieces, error)


def chat(content: str | None = "Paris it is.", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "reasoning": "Hm, France.", **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def delta(finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": more, "finish_reason": finish}]}


WHOLE = sent(chat())
STREAM = sent(
    delta(role="assistant", content=""), delta(reasoning="Hm."), delta(content="Par"),
    delta(content="is."), delta("stop"), {"choices": [], "usage": {}}, "DONE", streamed=True,
)  # fmt: skip


@pytest.mark.parametrize("answer", [WHOLE, STREAM])
@pytest.mark.parametrize(
    "typed",
    [
        "status is 200", "finish_reason is stop", "content has Par", "content lacks <think>",
        "reasoning has Hm", "reasoning lacks Paris", "calls nothing", "whole", "sense",
        "within 3.5 s", "within 60s",
    ],
)  # fmt: skip
def test_good_answer_meets_expectations(answer: Sent, typed: str) -> None:
    assert broken([parse(typed)], answer) == []


@pytest.mark.parametrize(
    ("typed", "answer", "message"),
    [
        ("status is 200", sent("no such model", status=404), "status is 404, not 200: 'no such"),
        ("status is 400", WHOLE, "status is 200, not 400"),
        ("finish_reason is stop", sent(delta("length"), "DONE", streamed=True), "is length, not"),
        ("content has Rome", WHOLE, "content lacks 'Rome': 'Paris it is.'"),
        ("content lacks Paris", STREAM, "content has 'Paris'"),
        ("reasoning has x", WHOLE, "reasoning lacks 'x'"),
        ("content is JSON", WHOLE, "content is not JSON"),
        ("content is JSON", sent(chat('{"a": NaN}')), "content is not JSON"),
        ("content is JSON", sent(chat('{"a": 1, "a": 2}')), "content is not JSON"),
        ("calls look_up", WHOLE, "it calls nothing, not look_up"),
        ("calls nothing", sent(chat(None, tool_calls=[CALL])), "it calls look_up, but no call"),
        (
            "calls look_up",
            sent(delta(tool_calls=[CALL]), delta(tool_calls=[MORE]), delta("tool_calls"), "DONE",
                 streamed=True),
            "the arguments of look_up are not JSON: '{\"a\": 1}}'",
        ),
        ("whole", sent(delta(content="a"), delta("stop"), streamed=True), "without [DONE]"),
        ("whole", sent(delta(content="a"), "DONE", streamed=True), "it has no finish_reason"),
        ("whole", sent({"error": {"message": "boom"}}, "DONE", streamed=True), "contains an error"),
        ("whole", sent("<html>"), "it cannot be read"),
        ("whole", sent([1]), "it cannot be read"),
        ("whole", sent(chat(), error="ReadTimeout: x"), "ReadTimeout: x"),
        ("sense", sent(chat("!!!!!!!!")), "only punctuation"),
        ("sense", sent(chat("", reasoning="")), "the answer is empty"),
        ("within 0.1 s", WHOLE, "it took 0.500 s, not 0.1 s"),
        ("within 0.1 s", sent(), "it took for ever"),
    ],
)  # fmt: skip
def test_unmet_expectation_is_explained(typed: str, answer: Sent, message: str) -> None:
    (sentence,) = broken([parse(typed)], answer)
    assert message in sentence


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ("status is 200", ("is", "status", "200")),
        (" finish_reason is stop\n", ("is", "finish_reason", "stop")),
        ("content has a is b", ("has", "content", "a is b")),
        ("reasoning lacks a\nb", ("lacks", "reasoning", "a\nb")),
        ("content is JSON", ("json", "content", "")),
        ("calls look_up", ("calls", "", "look_up")),
        ("within 0.5 s", ("within", "", "0.5")),
        ("whole", ("whole", "content", "")),
    ],
)
def test_expectation_keeps_its_parts_and_its_text(typed: str, parts: tuple[str, str, str]) -> None:
    expectation = Expectation(*parts, typed.strip())
    assert parse(typed) == expectation
    assert parse_all(["", typed, " \n"]) == (expectation,)


def test_tool_call_needs_no_content() -> None:
    answer = sent(chat(None, tool_calls=[CALL], reasoning=None))
    assert broken([parse("sense"), parse("calls look_up"), parse("whole")], answer) == []
    assert completion(answer).calls == {0: ["look_up", '{"a": 1}']}


def test_the_first_choice_is_the_answer() -> None:
    two = chat("Paris.")
    two["choices"].append({"index": 1, "message": {"content": "Rome."}, "finish_reason": "length"})
    assert broken([parse("content lacks Rome"), parse("finish_reason is stop")], sent(two)) == []


@pytest.mark.parametrize("typed", ["", "content", "content has", "status is fine", "calls", "soon"])
def test_unknown_expectation_is_refused_with_the_known_forms(typed: str) -> None:
    with pytest.raises(UserError) as raised:
        parse(typed)
    assert all(form in str(raised.value) for form in FORMS)


def test_sentence_about_an_error_has_its_status() -> None:
    refused = sent('{"error": {"message": "no"}}', status=400)
    assert broken(parse_all(["calls get_time"]), refused) == [
        "it calls nothing, not get_time (status 400)"
    ]
    assert broken([parse("status is 200")], refused)[0].startswith("status is 400, not 200: ")


def test_error_is_expected_by_its_status() -> None:
    assert expects_error(parse_all(["whole", "status is 400"]))
    assert not expects_error(parse_all(["status is 200", "calls nothing"]))
