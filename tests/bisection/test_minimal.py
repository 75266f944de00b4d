"""Delta debugging leaves the changes that are bad together, and no others."""

from __future__ import annotations

import itertools

import pytest

from pytest_vllm_gates.bisection import minimal
from pytest_vllm_gates.bisection.types import TrialAnswer

GOOD, BAD, INCONCLUSIVE = TrialAnswer.GOOD, TrialAnswer.BAD, TrialAnswer.INCONCLUSIVE
ITEMS = tuple("abcdefgh")


@pytest.mark.parametrize("culprits", [*itertools.combinations(ITEMS, 1), ("a", "h"), ("c", "d"),
                                      ("b", "e", "g")])  # fmt: skip
def test_exactly_the_culprits_are_left(culprits: tuple[str, ...]) -> None:
    tests: list[frozenset[str]] = []

    def test(made: frozenset[str]) -> TrialAnswer:
        tests.append(made)
        return BAD if {*culprits} <= made else GOOD

    found = minimal.find(ITEMS, test)
    assert {*found.items} == {*culprits}
    assert found.proven
    if len(culprits) == 1:
        assert len({*tests}) <= 4  # log2(8), and the culprit alone


def test_ddmin_finds_a_bad_subset_where_a_longer_beginning_is_good() -> None:
    def test(made: frozenset[str]) -> TrialAnswer:
        return BAD if made in (frozenset("ef"), frozenset(ITEMS)) else GOOD

    assert minimal.ddmin(ITEMS, test) == ("e", "f")


def test_change_that_cannot_be_kept_apart_is_named() -> None:
    def test(made: frozenset[str]) -> TrialAnswer:
        if "c" in made and "d" not in made:
            return INCONCLUSIVE
        return BAD if "c" in made else GOOD

    found = minimal.find(ITEMS, test)
    assert {*found.items} == {"c", "d"}
    assert not found.proven
    assert found.entangled == ("d",)
