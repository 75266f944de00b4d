"""The long text has the requested length, and does not repeat itself."""

from __future__ import annotations

from pytest_vllm_gates.long_context.types import load


def test_paragraphs_repeat_under_new_numbers() -> None:
    text = load()
    count = len(text.paragraphs)
    lines = list(text.text_of(count + 1))
    assert len(lines) == len(set(lines)) == count + 1
    assert lines[0] == f"1. {text.paragraphs[0]}\n"
    assert lines[-1] == f"{count + 1}. {text.paragraphs[0]}\n"
    assert list(text.text_of(0)) == []


def test_a_needle_is_hidden_within_the_text() -> None:
    assert all(0 <= depth <= 1 for depth in load().needle.depths)
