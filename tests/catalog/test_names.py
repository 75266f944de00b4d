"""Names are found in any spelling, and a wrong one gets a guess."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from texts import texts

from pytest_vllm_gates.catalog.toml import choose, fold, nearest
from pytest_vllm_gates.errors import UserError

KNOWN = ("deepseek", "gemma", "glm", "qwen3.5")


@pytest.mark.parametrize(
    "spelling", ["qwen3.5", "Qwen3.5", "qwen-3.5", "QWEN 3.5", "qwen_3_5", "qwen35", " Qwen3.5 "]
)
def test_case_and_punctuation_do_not_count(spelling: str) -> None:
    assert choose("family", spelling, KNOWN) == "qwen3.5"


@pytest.mark.parametrize(
    ("typed", "guess"),
    [("qwne3.5", "qwen3.5"), ("qwen3", "qwen3.5"), ("gema", "gemma"), ("deep-sek", "deepseek")],
)
def test_a_near_miss_gets_a_guess_and_the_known_names(typed: str, guess: str) -> None:
    with pytest.raises(UserError) as caught:
        choose("family", typed, KNOWN)
    assert str(caught.value) == (
        f"unknown family {typed!r}; did you mean {guess!r}?\nknown: deepseek, gemma, glm, qwen3.5"
    )


def test_a_name_like_no_other_gets_the_known_names_alone() -> None:
    with pytest.raises(UserError, match=r"^unknown lane 'xyzzy'\nknown: deepseek"):
        choose("lane", "xyzzy", KNOWN)


def test_message_without_known_names() -> None:
    with pytest.raises(UserError, match=r"^unknown lane 'cpu'\nknown: none$"):
        choose("lane", "cpu", ())


@pytest.mark.parametrize("typed", ["", "..", "--"])
def test_a_name_of_no_letters_is_unknown(typed: str) -> None:
    with pytest.raises(UserError, match="unknown family"):
        choose("family", typed, KNOWN)
    assert nearest(typed, KNOWN) is None


@given(texts)
def test_folding_twice_changes_nothing(name: str) -> None:
    assert fold(fold(name)) == fold(name)


@given(st.sampled_from(KNOWN), st.sampled_from(["-", "_", ".", " ", "/"]), st.integers(0, 8))
def test_punctuation_anywhere_finds_the_name(name: str, mark: str, position: int) -> None:
    assert choose("family", (name[:position] + mark + name[position:]).upper(), KNOWN) == name
