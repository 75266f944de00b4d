"""Ids belong to one answer, whole and streamed; the same request may be answered from a cache."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.conversations.checks import shared_ids
from pytest_vllm_gates.outcomes import Case


def asked(question: str, **more: object) -> Case:
    return Case(question, request={"messages": [question], **more})


@pytest.mark.parametrize(
    ("answer_id", "cases", "found"),
    [
        ("a-1", [asked("a"), asked("b"), asked("c")], ["its id 'a-1' is also in 2 other"]),
        ("a-1", [asked("a"), asked("a", stream=True, stream_options={})], []),
        ("", [asked("a"), asked("b")], []),
        (7, [asked("a"), asked("b")], []),
    ],
)
def test_an_answers_id_belongs_to_one_request(
    answer_id: object, cases: list[Case], found: list[str]
) -> None:
    findings = list(shared_ids.of_answers((answer_id, case) for case in cases))
    assert [each.says.startswith(start) for each, start in zip(findings, found, strict=True)] == (
        [True] * len(found)
    )


@pytest.mark.parametrize(
    ("call_id", "questions", "found"),
    [
        ("call-0", ["a", "b", "c"], ["the id 'call-0' is also a call's id in 2 other answers"]),
        ("call-0", ["a", "a"], []),
        ("functions.get_time:0", ["a", "b"], []),
    ],
)
def test_call_id_belongs_to_one_request(
    call_id: str, questions: list[str], found: list[str]
) -> None:
    answer = Answer("", "", (ToolCall("get_time", "{}", call_id),), "tool_calls", None)
    findings = shared_ids.of_calls((answer, asked(question)) for question in questions)
    assert [each.says for each in findings] == found
