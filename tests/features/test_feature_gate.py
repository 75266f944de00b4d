"""The run's options choose the combinations; a name that is none ends it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_a_feature_that_is_none_is_named_before_anything_boots(pytester: pytest.Pytester) -> None:
    ran = pytester.runpytest_subprocess("--model", "qwen3.5", "--features", "ngrm")
    ran.stderr.fnmatch_lines(["*there is no feature 'ngrm'; did you mean 'ngram'?*"])
    assert ran.ret == 4


def test_combinations_are_parameters_of_the_gate(pytester: pytest.Pytester) -> None:
    arguments = ("--model", "qwen3.5", "-m", "features", "--collect-only", "-q")
    ran = pytester.runpytest_subprocess(*arguments, "--features", "ngram,guidance+small-steps")
    names = [line for line in ran.outlines if "test_answers_as_without_them" in line]
    assert [name.partition("[")[2] for name in names] == [
        "qwen3.5-ngram]", "qwen3.5-guidance+small-steps]"
    ]  # fmt: skip
