"""Which gates are for a family, by whether it answers or makes vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.verdict import gates as verdict_gates

NOWHERE = Path("/nonexistent")


@pytest.mark.parametrize("name", ["qwen3.5", "gemma/3", "qwen3-vl"])
def test_nothing_is_said_of_vectors_where_a_family_answers(name: str) -> None:
    family = families.load(name, NOWHERE)
    assert verdict_gates.not_applicable(family) == family.not_applicable
    assert verdict_gates.unasked(family) == {"pooling"}


def test_a_family_that_makes_vectors_is_told_what_does_not_apply() -> None:
    family = families.load("qwen3-embedding", NOWHERE)
    reasons = verdict_gates.not_applicable(family)
    assert verdict_gates.unasked(family) == set()
    judged = {"boot", "startup", "pooling", "captured", "incidents"}
    assert {*reasons} == {*verdict_gates.gate_files()} - judged
    assert {*reasons.values()} == {"it makes vectors, scores or classes, and writes no text"}
