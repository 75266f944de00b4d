"""Compares an answer with the taught one."""

import json
from collections.abc import Sequence

from pytest_vllm_gates.miniatures.dialogues import Call, Dialogue


def differences(
    dialogue: Dialogue,
    *,
    reasoning: str | None,
    content: str | None,
    tool_calls: Sequence[Call],
    finish_reason: str | None,
) -> list[str]:
    """Return one line for each part of an answer that differs from the taught one."""
    pairs: list[tuple[str, object, object]] = [
        ("reasoning", _text(dialogue.reasoning), _text(reasoning)),
        ("content", _text(dialogue.content), _text(content)),
        ("tool_calls", _calls(dialogue.tool_calls), _calls(tool_calls)),
        ("finish_reason", dialogue.finish_reason, finish_reason),
    ]
    return [
        f"{dialogue.id}: {part}: expected {expected!r}, got {got!r}"
        for part, expected, got in pairs
        if expected != got
    ]


def _text(text: str | None) -> str:
    """Parsers keep or drop the blank lines around a text; they are not significant."""
    return (text or "").strip()


def _calls(calls: Sequence[Call]) -> list[tuple[str, object]]:
    return [(call.name, _arguments(call.arguments)) for call in calls]


def _arguments(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return f"not JSON: {text!r}"
