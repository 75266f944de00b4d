"""No tag, marker or special token of the wire format reaches a field that a client reads."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.client.answer import ToolCall
from pytest_vllm_gates.conversations.checks.content import markers

QWEN = family("qwen3.5")


def told(**fields: Any) -> list[str]:
    return list(markers(exchange(answer(**fields)), QWEN))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasoning": "I think.", "tool_calls": (WEATHER,)},
        {"content": "if a < b and c > d: x <y> </b> <|not_a_token|>"},
        {"content": "think, tool_call, im_end"},
    ],
    ids=["plain", "all fields", "angles", "words"],
)
def test_ordinary_text_is_no_marker(fields: dict[str, Any]) -> None:
    assert told(**fields) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"content": "Hm.</think>Yes."}, "content holds the marker '</think>': …'Hm.</think>Yes.'"),
        ({"content": "Yes.<|im_end|>"}, "content holds the marker '<|im_end|>'"),
        ({"reasoning": "<think>\nHm."}, "reasoning holds the marker '<think>'"),
        ({"content": "<function=get_weather>"}, "content holds the marker '<function='"),
        (
            {"tool_calls": (ToolCall("get_time</function>", "{}"),)},
            "tool_calls[0].name holds the marker '</function>'",
        ),
        (
            {"tool_calls": (WEATHER, ToolCall("x", '{"city": "Oslo\\n</parameter>"}'))},
            "tool_calls[1].arguments holds the marker '</parameter>'",
        ),
    ],
)
def test_a_marker_is_told_with_its_field(fields: dict[str, Any], sentence: str) -> None:
    assert any(text.startswith(sentence) for text in told(**fields)), told(**fields)


def test_a_marker_the_request_quotes_may_come_back() -> None:
    quoted = {"messages": [{"role": "user", "content": "What does </think> mean?"}]}
    says = answer("</think> ends the thinking, <think> begins it.")
    found = list(markers(exchange(says, request=quoted), QWEN))
    assert [text.partition(":")[0] for text in found] == ["content holds the marker '<think>'"]


def test_a_marker_in_other_letters_may_come_back_too() -> None:
    entry = family("deepseek")
    marker = next(marker for marker in entry.markers if not marker.isascii())
    quoted = {"messages": [{"role": "user", "content": f"What is {marker}?"}]}
    says = answer(f"{marker} is where I begin.")
    assert list(markers(exchange(says), entry)) != []
    assert list(markers(exchange(says, request=quoted), entry)) == []


def test_long_text_is_shown_where_the_marker_is() -> None:
    (sentence,) = told(content="x" * 5000 + "<|im_end|>" + "y" * 5000)
    shown = "x" * 30 + "<|im_end|>" + "y" * 30
    assert sentence == f"content holds the marker '<|im_end|>': …'{shown}'…"


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_every_familys_own_call_would_be_seen(name: str) -> None:
    entry = family(name)
    assert entry.tools is not None
    assert list(markers(exchange(answer(entry.tools.call)), entry)) != []


def test_without_an_answer_there_is_nothing_to_tell() -> None:
    assert list(markers(exchange(None), QWEN)) == []
