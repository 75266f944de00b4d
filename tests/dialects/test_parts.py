"""Thinking comes before everything else, and a part without text is reported."""

from __future__ import annotations

from typing import Any

import pytest

from dialects.made import ITEMS, MESSAGE, RESPONSE, reply
from pytest_vllm_gates.dialects import parts

THINKING, TEXT, CALL = MESSAGE["content"]
REASONING, SAID, _ = ITEMS


@pytest.mark.parametrize(
    ("dialect", "body", "found"),
    [
        ("messages", MESSAGE, []),
        ("responses", RESPONSE, []),
        ("completions", {"choices": []}, []),
        (
            "messages",
            {"content": [TEXT, THINKING]},
            ["content: text, thinking: thinking has to come first"],
        ),
        ("messages", {"content": [THINKING, CALL, TEXT]}, []),
        (
            "messages",
            {"content": [THINKING, {**TEXT, "text": ""}, CALL]},
            ["content[1] is text without any text"],
        ),
        (
            "messages",
            {"content": [{**THINKING, "thinking": ""}, TEXT]},
            ["content[0] is thinking without any text"],
        ),
        (
            "responses",
            {"output": [SAID, REASONING]},
            ["output: message, reasoning: thinking has to come first"],
        ),
        (
            "responses",
            {"output": [REASONING, {**SAID, "content": [{"type": "output_text", "text": ""}]}]},
            ["output[1] is message without any text"],
        ),
        ("messages", {"content": [{**TEXT, "text": ""}]}, []),
    ],
)
def test_parts(dialect: str, body: dict[str, Any], found: list[str]) -> None:
    assert list(parts.faults(reply(dialect, "whole", body))) == found
