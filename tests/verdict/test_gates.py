"""The gates that apply to a family depend on whether it answers or makes vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.verdict import gates as verdict_gates

NOWHERE = Path("/nonexistent")


@pytest.mark.parametrize("name", ["qwen3.5", "gemma/3", "qwen3-vl"])
def test_pooling_is_not_reported_for_a_family_that_answers(name: str) -> None:
    family = families.load(name, NOWHERE)
    assert verdict_gates.not_applicable(family) == family.not_applicable
    assert verdict_gates.unasked(family) == {"pooling"}


def test_gates_that_do_not_apply_to_vectors_are_reported() -> None:
    family = families.load("qwen3-embedding", NOWHERE)
    reasons = verdict_gates.not_applicable(family)
    assert verdict_gates.unasked(family) == set()
    judged = {"boot", "startup", "pooling", "captured", "incidents"}
    assert {*reasons} == {*verdict_gates.gate_files()} - judged
    assert {*reasons.values()} == {"it makes vectors, scores or classes, and writes no text"}
