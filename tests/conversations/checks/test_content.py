"""An answer in a format has nothing beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange
from pytest_vllm_gates.conversations.checks.content import is_judgeable, json_value, pattern

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Answer

SCHEMA = {
    "type": "object",
    "required": ["born"],
    "additionalProperties": False,
    "properties": {"born": {"type": "integer"}},
}
RIGHT = '{"born": 1815}'


def of_json(reply: Answer, **fields: Any) -> list[str]:
    return list(json_value(exchange(reply, format="json_schema", json_schema=SCHEMA, **fields)))


def of_pattern(reply: Answer, **fields: Any) -> list[str]:
    return list(pattern(exchange(reply, format="regex", regex=r"\s?[A-Z][a-z ]+\.", **fields)))


@pytest.mark.parametrize("content", [RIGHT, f"\n\n{RIGHT}\n", '{\n  "born": 1815\n}'])
def test_content_of_one_valid_value_is_right(content: str) -> None:
    assert of_json(answer(content)) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "content is not one JSON value (Expecting value"),
        (f"Here: {RIGHT}", "content is not one JSON value (Expecting value"),
        (f"{RIGHT} Done.", "content is not one JSON value (Extra data"),
        (f"{RIGHT}\n{RIGHT}", "content is not one JSON value (Extra data"),
        (f"```json\n{RIGHT}\n```", "content is not one JSON value (Expecting value"),
        ('{"born": 1815', "content is not one JSON value (Expecting ','"),
        ("[]", "content: [] is not of type 'object'"),
        ('"{}"', "content: '{}' is not of type 'object'"),
        ("{}", "content: 'born' is a required property"),
        ('{"born": "1815"}', "content.born: '1815' is not of type 'integer'"),
        ('{"born": 1815, "died": 1852}', "content: Additional properties are not allowed"),
        ('{"born": NaN}', "content is not one JSON value (NaN is not a finite number)"),
        ('{"born": -Infinity}', "content is not one JSON value (-Infinity is not a finite number)"),
        ('{"born": 1e999}', "content is not one JSON value (1e999 is not a finite number)"),
        (f'{{"born": "?", {RIGHT[1:]}', "content is not one JSON value (the key 'born' is given"),
    ],
)
def test_content_other_than_one_valid_value_is_a_fault(content: str, sentence: str) -> None:
    (fault,) = of_json(answer(content))
    assert fault.startswith(sentence)


@pytest.mark.parametrize(
    ("reasoning", "in_reasoning"),
    [(f"Hm. {RIGHT}", True), ("Hm.", False), ("{not JSON", False), ("", False)],
)
def test_json_in_the_reasoning_is_reported(reasoning: str, in_reasoning: bool) -> None:
    (fault,) = of_json(answer("", reasoning=reasoning))
    assert fault.endswith("; reasoning contains it") == in_reasoning


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("It is cold.", True),
        (" It is cold.", True),
        ("It is cold", False),
        ("it is cold.", False),
        ("It is cold. Very.", False),
        ("", False),
    ],
)
def test_the_pattern_matches_the_whole_content(content: str, right: bool) -> None:
    faults = of_pattern(answer(content))
    assert (faults == []) == right
    assert all(fault.startswith(r"content does not match '\\s?[A-Z]") for fault in faults)


@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        (answer("", finish_reason="length"), {}),
        (answer("", stop_reason="x"), {"stop_at": "x"}),
        (answer("", tool_calls=(WEATHER,)), {}),
    ],
    ids=["the limit", "a stop", "a call"],
)
def test_cut_and_stopped_answers_are_not_judged(reply: Answer, fields: dict[str, Any]) -> None:
    assert of_json(reply, **fields) == of_pattern(reply, **fields) == []


def test_a_request_without_a_format_is_not_judged() -> None:
    plain = exchange(answer("Hello"))
    assert not is_judgeable(plain)
    assert not is_judgeable(exchange(None, format="regex"))
    assert list(json_value(plain)) == list(pattern(plain)) == []


def test_long_content_is_cut_in_the_sentence() -> None:
    (fault,) = of_json(answer("x" * 10_000))
    assert len(fault) < 300
