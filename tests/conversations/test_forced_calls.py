"""Awkward texts are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.conversations.forced_calls import HostileText, HostileTexts
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_is_repeated_times_times(tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text(
        '[[texts]]\nname = "a"\ntext = ""\n[[texts]]\nname = "b"\ntext = "b"\ntimes = 9'
    )
    assert toml.load(file, HostileTexts).texts == (
        HostileText(name="a", text=""),
        HostileText(name="b", text="b", times=9),
    )


def test_an_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text('[[texts]]\nname = "a"\ntext = "b"\ntime = 9\n')
    with pytest.raises(UserError, match="did you mean 'times'"):
        toml.load(file, HostileTexts)
