"""An answer in a format is exactly that, whatever stands beside it."""

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


def of_json(whole: Answer, **fields: Any) -> list[str]:
    return list(json_value(exchange(whole, format="json_schema", json_schema=SCHEMA, **fields)))


def of_pattern(whole: Answer, **fields: Any) -> list[str]:
    return list(pattern(exchange(whole, format="regex", regex=r"\s?[A-Z][a-z ]+\.", **fields)))


@pytest.mark.parametrize("content", [RIGHT, f"\n\n{RIGHT}\n", '{\n  "born": 1815\n}'])
def test_one_value_of_the_schema_is_right(content: str) -> None:
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
    ],
)
def test_anything_else_is_told(content: str, sentence: str) -> None:
    (found,) = of_json(answer(content))
    assert found.startswith(sentence)


@pytest.mark.parametrize(
    ("reasoning", "held"),
    [(f"Hm. {RIGHT}", True), ("Hm.", False), ("{not JSON", False), ("", False)],
)
def test_json_in_the_reasoning_is_told(reasoning: str, held: bool) -> None:
    (found,) = of_json(answer("", reasoning=reasoning))
    assert found.endswith("; reasoning holds it") == held


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
def test_the_pattern_is_that_of_the_whole_content(content: str, right: bool) -> None:
    found = of_pattern(answer(content))
    assert (found == []) == right
    assert all(text.startswith(r"content does not match '\\s?[A-Z]") for text in found)


@pytest.mark.parametrize(
    ("whole", "fields"),
    [
        (answer("", finish_reason="length"), {}),
        (answer("", stop_reason="x"), {"stop_at": "x"}),
        (answer("", tool_calls=(WEATHER,)), {}),
    ],
    ids=["the limit", "a stop", "a call"],
)
def test_an_answer_that_had_no_chance_is_not_judged(whole: Answer, fields: dict[str, Any]) -> None:
    assert of_json(whole, **fields) == of_pattern(whole, **fields) == []


def test_what_asks_for_no_format_is_not_judged() -> None:
    plain = exchange(answer("Hello"))
    assert not is_judgeable(plain)
    assert not is_judgeable(exchange(None, format="regex"))
    assert list(json_value(plain)) == list(pattern(plain)) == []


def test_long_content_is_cut_where_it_is_shown() -> None:
    (found,) = of_json(answer("x" * 10_000))
    assert len(found) < 300
