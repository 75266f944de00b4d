"""A trusted run is written and read back; what is cut or has no numbers is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from numerics.forced_runs import made, recorded
from pytest_vllm_gates.numerics import trusted_golden
from pytest_vllm_gates.numerics.checks_paired import Equivalence, compare


def test_run_is_read_as_it_was_written() -> None:
    run = replace(recorded(), declared={"dtype": "bfloat16", "hf_overrides": "{'a': 1}"})
    text = trusted_golden.written("Qwen 3.5", run)
    assert text.startswith("golden 1: trusted run: Qwen 3.5\n")
    assert text.endswith("\nend of golden\n")
    assert trusted_golden.parsed(text) == run


def test_rounding_of_the_file_is_not_a_difference() -> None:
    run = made(noise=0.01, seed=5)
    (alone, *_) = compare(trusted_golden.parsed(trusted_golden.written("x", run)), run)
    assert alone.answer is Equivalence.EQUIVALENT


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("build 0.32.0\n", "", "'build' is missing"),
        ("alone -", "alone nan -", "has a number that is not valid"),
        ("alone -", "alone 1 -", "different numbers of log-probabilities and of tokens"),
        ("ids ", "ids x ", "invalid literal"),
        ("text ", "other ", "it has no text"),
    ],
)
def test_spoilt_run_is_refused(before: str, after: str, words: str) -> None:
    text = trusted_golden.written("x", replace(recorded(), texts=recorded().texts[:1]))
    assert before in text
    with pytest.raises(ValueError, match=words):
        trusted_golden.parsed(text.replace(before, after, 1))
