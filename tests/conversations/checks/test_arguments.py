"""A call's arguments arrive as they were written, however awkward their texts or types."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from conversations.exchanges import answer
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.client.answer import Answer, ToolCall
from pytest_vllm_gates.conversations.checks.tool_calls import altered_arguments
from pytest_vllm_gates.conversations.forced_calls import ForcedReply, HostileTexts
from pytest_vllm_gates.conversations.forced_cases import TEXTS

TEXT = 'say "hi"\n2>&1'


def saved(text: Any, calls: int = 1) -> Answer:
    call = ToolCall("save_note", json.dumps({"text": text}), "call-1")
    return answer("Noted.", tool_calls=(call,) * calls)


def faults_of(
    reply: Answer, streamed: Answer | None = None, wide: Answer | None = None, exact: bool = True
) -> list[str]:
    forced = ForcedReply(
        "quotes", {"text": TEXT}, exact, {}, reply, streamed or reply, wide or reply
    )
    return list(altered_arguments(forced))


def test_arguments_as_written_are_right() -> None:
    assert faults_of(saved(TEXT)) == []


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (saved('say "hi"'), "whole: text is 'say \"hi\"', written was 'say \"hi\"\\n2>&1'"),
        (saved(""), "whole: text is '', written was"),
        (saved(None), "whole: text is null, written was"),
        (saved(7), "whole: text is 7, written was"),
        (saved(TEXT, calls=2), "whole: one call was written and 2 came"),
        (answer("Noted."), "whole: one call was written and 0 came"),
    ],
)
def test_an_altered_text_is_a_fault(reply: Answer, sentence: str) -> None:
    (fault,) = faults_of(reply)
    assert fault.startswith(sentence)


@pytest.mark.parametrize("arguments", ["", "{", "[]", '"text"', "{}"])
def test_a_missing_text_is_a_fault(arguments: str) -> None:
    call = ToolCall("save_note", arguments, "call-1")
    (fault,) = faults_of(answer("Noted.", tool_calls=(call,)))
    assert fault.startswith("whole: text is missing")


@pytest.mark.parametrize(
    ("written", "actual", "sentence"),
    [
        (2, "2", "value is '2', written was 2"),
        (True, 1, "value is 1, written was true"),
        (0, False, "value is false, written was 0"),
        (None, "None", "value is 'None', written was null"),
        (None, False, "value is false, written was null"),
        (9007199254740993, 9007199254740992, "value is 9007199254740992, written was"),
        ({"a": [1, True]}, {"a": [1, 1]}, 'value is {"a": [1, 1]}, written was {"a": [1, true]}'),
        ({"a": 1}, '{"a": 1}', """value is '{"a": 1}', written was {"a": 1}"""),
        ({"a": 1}, {"a": 1, "b": 2}, "value is"),
        ([1], [1, 1], "value is [1, 1], written was [1]"),
        ([1], {"0": 1}, "value is"),
    ],
)
def test_an_altered_type_is_a_fault(written: Any, actual: Any, sentence: str) -> None:
    call = ToolCall("save_note", json.dumps({"value": actual}), "call-1")
    reply = answer("Noted.", tool_calls=(call,))
    (fault,) = altered_arguments(
        ForcedReply("one", {"value": written}, True, {}, reply, reply, reply)
    )
    assert fault.startswith(f"whole: {sentence}")


@pytest.mark.parametrize("value", [None, True, 0, 2.5, "", [], {}, {"a": [None, {"b": 1.5}]}])
def test_an_equal_value_is_right(value: Any) -> None:
    call = ToolCall("save_note", json.dumps({"value": value}), "call-1")
    reply = answer("Noted.", tool_calls=(call,))
    assert [
        *altered_arguments(ForcedReply("one", {"value": value}, True, {}, reply, reply, reply))
    ] == []


def test_an_integer_equals_the_same_float() -> None:
    call = ToolCall("save_note", '{"value": 3}', "call-1")
    reply = answer("Noted.", tool_calls=(call,))
    assert [
        *altered_arguments(ForcedReply("one", {"value": 3.0}, True, {}, reply, reply, reply))
    ] == []


def test_each_altered_argument_is_named() -> None:
    call = ToolCall("save_note", '{"one": "1", "more": [2]}', "call-1")
    reply = answer("Noted.", tool_calls=(call,))
    forced = ForcedReply("all", {"one": 1, "two": 2}, True, {}, reply, reply, reply)
    assert [*altered_arguments(forced)] == [
        "whole: one is '1', written was 1",
        "whole: two is missing, written was 2",
        "whole: more was not written, and is [2]",
    ]


def test_an_inexact_format_only_has_to_agree_with_its_stream() -> None:
    altered = saved("something else")
    assert faults_of(altered, exact=False) == []
    assert faults_of(altered, streamed=saved(TEXT), exact=False) != []


def test_each_mode_is_named() -> None:
    reply, lost = saved(TEXT), saved("")
    assert [text.partition(": ")[0] for text in faults_of(reply, streamed=lost)] == ["streamed"]
    assert [text.partition(": ")[0] for text in faults_of(reply, wide=lost)] == ["wide"]
    (sentence,) = faults_of(reply, wide=replace(reply, tool_calls=()))
    assert sentence.startswith("wide: tool_calls: 1 in the whole answer (save_note), 0 in the wide")


def test_long_texts_are_cut_and_measured() -> None:
    reply = ForcedReply(
        "long", {"text": "x" * 10_000}, True, {}, saved("y" * 4096), saved(""), saved("")
    )
    sentence = next(altered_arguments(reply))
    assert "(4096 characters)" in sentence
    assert "(10000 characters)" in sentence
    assert len(sentence) < 400


def test_shipped_texts_include_every_awkward_character() -> None:
    texts = toml.load(TEXTS, HostileTexts).texts
    assert len({text.name for text in texts}) == len(texts)
    every = "\0".join(text.text for text in texts)
    awkward_texts = [
        '"',
        "\\",
        "\n",
        "{",
        "}",
        "[",
        "<",
        ">",
        "&",
        "2>&1",
        "${close}",
        "${open}",
        "東",
    ]
    assert [text for text in awkward_texts if text not in every] == []
    assert "" in [text.text for text in texts]
    assert max(len(text.text) * text.times for text in texts) >= 10_000


def test_a_stream_of_several_tokens_a_delta_is_called_wide() -> None:
    lost = replace(saved(TEXT), tool_calls=(), delta_tokens=(1, 3))
    names = [sentence.partition(":")[0] for sentence in faults_of(saved(TEXT), streamed=lost)]
    assert set(names) == {"wide"}
    lost = replace(lost, delta_tokens=(1, 1))
    names = [sentence.partition(":")[0] for sentence in faults_of(saved(TEXT), streamed=lost)]
    assert set(names) == {"streamed"}
