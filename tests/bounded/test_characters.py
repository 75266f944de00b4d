"""Invisible characters are found in names, and shown on terminals."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.bounded import characters


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("qwen3.5", ""), ("größe 你好 ✅", ""), ("", ""), ("a\u200bb", "U+200B"),
        ("a\u202eb", "U+202E"), ("a\x1b[31m", "U+001B"), ("a\nb", "U+000A"), ("\ufeffa", "U+FEFF"),
        ("a\u00a0b", "U+00A0"), ("\u3164", "U+3164"), ("a\u200db", "U+200D"), ("\x7f", "U+007F"),
        ("\u2028", "U+2028"), ("\ud800", "U+D800"), ("a\U000e0041", "U+E0041"),
    ],
)  # fmt: skip
def test_hidden_characters_of_names_are_found(name: str, found: str) -> None:
    assert characters.hidden(name) == found


def test_sentence_may_have_joiners_and_wide_spaces() -> None:
    assert characters.hidden("\u0645\u06cc\u200c\u062e 👩\u200d💻 a\u00a0b", sentence=True) == ""
    assert characters.hidden("a\u202eb", sentence=True) == "U+202E"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain\n\ttext ✅", "plain\n\ttext ✅"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x1b[2J\x1b[H", "␛[2J␛[H"),
        ("\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[m", "\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[m"),
        ("\x1b[8mhidden", "␛[8mhidden"),
        ("\x1b[1;8mhidden", "␛[1;8mhidden"),
        ("FAIL\rPASS", "FAIL␍PASS"),
        ("a\r\nb", "a\nb"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("\u202eevil\u2066", "⟨U+202E⟩evil⟨U+2066⟩"),
        ("\x08\x7f\x00", "␈␡␀"),
        ("\ud800", "⟨U+D800⟩"),
    ],
)
def test_control_characters_are_made_visible(text: str, seen: str) -> None:
    assert characters.shown(text) == seen


def test_output_of_plugins_may_move_the_cursor_but_not_set_a_title() -> None:
    assert characters.written("\r\x1b[2Kcollecting") == "\r\x1b[2Kcollecting"
    assert characters.written("\x1b]52;c;ZXZpbA==\x07") == "␛]52;c;ZXZpbA==␇"
