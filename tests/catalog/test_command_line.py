"""Options are removed from a command line with their values, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.catalog.flags import without

OTHER_ARGUMENTS = st.lists(
    st.sampled_from(["--model", "qwen3.5", "-q", "--pairs-of=3", "m", "mine/"])
)


@pytest.mark.parametrize(
    ("typed", "remaining"),
    [
        (["-m", "boot or load", "-q"], ["-q"]),
        (["-mboot", "-q"], ["-q"]),
        (["--pairs=3", "-q"], ["-q"]),
        (["--pairs", "3", "-q"], ["-q"]),
        (["--golden", "-q"], ["-q"]),
        (
            ["--goldens", "--pair", "3", "--model", "m"],
            ["--goldens", "--pair", "3", "--model", "m"],
        ),
        (["-q", "-m"], ["-q"]),
        ([], []),
    ],
)
def test_option_is_removed_with_its_value(typed: list[str], remaining: list[str]) -> None:
    assert without(typed, ["-m", "--pairs"], ["--golden"]) == remaining


@given(
    OTHER_ARGUMENTS,
    OTHER_ARGUMENTS,
    st.sampled_from([["-m", "x"], ["-mx"], ["--pairs=x"], ["--golden"]]),
)
def test_other_arguments_are_kept(before: list[str], after: list[str], option: list[str]) -> None:
    assert without([*before, *option, *after], ["-m", "--pairs"], ["--golden"]) == before + after


@pytest.mark.parametrize(
    ("typed", "remaining"),
    [
        (["--keep", "15m", "-q"], ["-q"]),
        (["--keep=15m", "-q"], ["-q"]),
        (["--keep", "-q"], ["-q"]),
        (["-q", "--keep"], ["-q"]),
        (["--keeper", "15m"], ["--keeper", "15m"]),
        (["--keep", "-m", "x", "y"], ["y"]),
    ],
)
def test_option_with_optional_value_is_removed_with_it(
    typed: list[str], remaining: list[str]
) -> None:
    assert without(typed, ["-m"], (), ["--keep"]) == remaining
