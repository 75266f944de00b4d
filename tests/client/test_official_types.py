"""The official clients' types refuse wrong fields as a strict client does, one sentence each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pytest_vllm_gates.client.official_types import wrong_fields


class Text(BaseModel):
    """A part of an answer."""

    type: Literal["text"]
    text: str


class Call(BaseModel):
    """Another."""

    type: Literal["call"]
    arguments: str


class Body(BaseModel):
    """An answer."""

    id: str
    parts: list[Text | Call]
    cache_write_tokens: int


RIGHT: dict[str, Any] = {
    "id": "a",
    "parts": [{"type": "text", "text": ""}],
    "cache_write_tokens": 0,
}


def sentences(**change: Any) -> list[str]:
    return [*wrong_fields(Body, {**RIGHT, **change})]


def test_right_answers_have_no_fault() -> None:
    assert sentences() == []
    assert [*wrong_fields(Body, b'{"id": "a", "parts": [], "cache_write_tokens": 1}')] == []
    assert sentences(novelty={"of": 1}) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"id": 7}, "id: Input should be a valid string, got 7"),
        (
            {"parts": [{"type": "text", "text": None}]},
            "parts.0.text: Input should be a valid string, got None",
        ),
        (
            {"parts": [{"type": "image"}]},
            "parts.0.type 'image' is not known to the official client",
        ),
        ({"parts": 7}, "parts: Input should be a valid array, got 7"),
    ],
)
def test_a_wrong_field_is_named_once(change: dict[str, Any], sentence: str) -> None:
    assert sentences(**change) == [sentence]


def test_every_unknown_type_is_named_beside_other_faults() -> None:
    parts = [{"type": "image"}, {"type": "text", "text": ""}, {"type": "call", "arguments": {}}]
    assert sentences(parts=parts) == [
        "parts.0.type 'image' is not known to the official client",
        "parts.2.arguments: Input should be a valid string, got {}",
    ]


def test_a_field_newer_than_the_server_may_be_missing() -> None:
    assert [*wrong_fields(Body, {"id": "a", "parts": []})] == []


@pytest.mark.parametrize("data", [b"<html>", b'{"id": ', b"\xff", b"[" * 5000, b'"\\ud83e"'])
def test_bytes_that_are_not_json_are_a_fault(data: bytes) -> None:
    (sentence,) = wrong_fields(Body, data)
    assert sentence.startswith("it: Invalid JSON")


def test_values_that_cannot_be_written_are_a_fault() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    (sentence,) = wrong_fields(Body, deep)
    assert sentence.startswith("the JSON cannot be validated")


def test_a_union_of_events_is_a_type() -> None:
    event = Annotated[Text | Call, "metadata"]
    assert [*wrong_fields(event, {"type": "text", "text": "a"})] == []
    assert [*wrong_fields(event, {"type": "other"})] == [
        "type 'other' is not known to the official client"
    ]
