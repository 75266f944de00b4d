"""No tag, marker or special token of the wire format reaches a field that a client reads."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.exchanges import WEATHER, answer, exchange, family
from pytest_vllm_gates.client.answer import ToolCall
from pytest_vllm_gates.conversations.checks.reasoning import markers

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
def test_ordinary_text_has_no_marker(fields: dict[str, Any]) -> None:
    assert told(**fields) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"content": "Hm.</think>Yes."},
            "content contains the marker '</think>': …'Hm.</think>Yes.'",
        ),
        ({"content": "Yes.<|im_end|>"}, "content contains the marker '<|im_end|>'"),
        ({"reasoning": "<think>\nHm."}, "reasoning contains the marker '<think>'"),
        ({"content": "<function=get_weather>"}, "content contains the marker '<function='"),
        (
            {"tool_calls": (ToolCall("get_time</function>", "{}"),)},
            "tool_calls[0].name contains the marker '</function>'",
        ),
        (
            {"tool_calls": (WEATHER, ToolCall("x", '{"city": "Oslo\\n</parameter>"}'))},
            "tool_calls[1].arguments contains the marker '</parameter>'",
        ),
    ],
)
def test_a_marker_is_reported_with_its_field(fields: dict[str, Any], sentence: str) -> None:
    assert any(text.startswith(sentence) for text in told(**fields)), told(**fields)


def test_a_marker_quoted_by_the_request_is_allowed() -> None:
    quoted = {"messages": [{"role": "user", "content": "What does </think> mean?"}]}
    quoting = answer("</think> ends the thinking, <think> begins it.")
    sentences = list(markers(exchange(quoting, request=quoted), QWEN))
    assert [text.partition(":")[0] for text in sentences] == [
        "content contains the marker '<think>'"
    ]


def test_a_quoted_marker_outside_ascii_is_allowed() -> None:
    deepseek = family("deepseek")
    marker = next(marker for marker in deepseek.markers if not marker.isascii())
    quoted = {"messages": [{"role": "user", "content": f"What is {marker}?"}]}
    quoting = answer(f"{marker} is where I begin.")
    assert list(markers(exchange(quoting), deepseek)) != []
    assert list(markers(exchange(quoting, request=quoted), deepseek)) == []


def test_long_text_is_shown_around_the_marker() -> None:
    (sentence,) = told(content="x" * 5000 + "<|im_end|>" + "y" * 5000)
    excerpt = "x" * 30 + "<|im_end|>" + "y" * 30
    assert sentence == f"content contains the marker '<|im_end|>': …'{excerpt}'…"


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek", "glm", "gemma"])
def test_every_familys_call_has_a_marker(name: str) -> None:
    tested_family = family(name)
    assert tested_family.tools is not None
    assert list(markers(exchange(answer(tested_family.tools.call)), tested_family)) != []


def test_no_answer_has_no_markers() -> None:
    assert list(markers(exchange(None), QWEN)) == []
