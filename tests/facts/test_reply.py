"""Awkward texts are data, and a forced reply is told by the name of its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judge.exchanges import answer

from pytest_vllm_gates.facts import strict
from pytest_vllm_gates.facts.errors import UserError
from pytest_vllm_gates.facts.reply import Hostile, HostileTexts, Reply

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_is_sent_once_unless_it_says(tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text(
        '[[texts]]\nname = "a"\ntext = ""\n[[texts]]\nname = "b"\ntext = "b"\ntimes = 9'
    )
    assert strict.load(file, HostileTexts).texts == (
        Hostile(name="a", text=""),
        Hostile(name="b", text="b", times=9),
    )


def test_a_mistake_is_told(tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text('[[texts]]\nname = "a"\ntext = "b"\ntime = 9\n')
    with pytest.raises(UserError, match="did you mean 'times'"):
        strict.load(file, HostileTexts)


def test_known_defects_tell_a_reply_by_its_text() -> None:
    one = answer()
    assert Reply("quotes", '"', True, {}, one, one, one).traits == {"text": "quotes"}
