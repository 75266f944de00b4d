"""The search finds seeded culprits, within the promised number of boots."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.bisection import search
from pytest_vllm_gates.bisection.types import AxisSpan, Mixture, TrialAnswer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import bisect_search  # type: ignore[import-not-found, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.bisection.types import Ask

GOOD, BAD, INCONCLUSIVE = TrialAnswer.GOOD, TrialAnswer.BAD, TrialAnswer.INCONCLUSIVE
SIX = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
VLLM = AxisSpan("vllm", SIX[0], SIX[-1], SIX)
FLAGS = AxisSpan("flags", "a", "b", items=("first", "second", "third"))


@pytest.mark.parametrize("name", bisect_search.CULPRITS)
def test_seeded_culprit_is_found_within_the_promised_boots(name: str) -> None:
    row = bisect_search.tally(name, 25, 36)
    assert row.right >= 24
    assert row.wrong_and_certain == 0
    assert row.beyond == 0


def asked_of(bad: Callable[[Mixture], bool]) -> tuple[list[Mixture], Ask]:
    mixtures: list[Mixture] = []

    def ask(mixture: Mixture, number: int) -> TrialAnswer:
        del number
        mixtures.append(mixture)
        return BAD if bad(mixture) else GOOD

    return mixtures, ask


def test_both_sides_of_the_change_are_tried_three_times() -> None:
    def bad(mixture: Mixture) -> bool:
        return "vllm" in mixture.changed or mixture.version == ("vllm", "0.31.0")

    mixtures, ask = asked_of(bad)
    result = search.find([VLLM], ask)
    (culprit,) = result.culprits
    assert (culprit.last_good, culprit.first_bad) == ("0.30.0", "0.31.0")
    assert result.certain
    for version in ("0.30.0", "0.31.0"):
        assert mixtures.count(Mixture(version=("vllm", version))) == 3
    assert len(mixtures) <= 2 + 3 + 4


@pytest.mark.parametrize(
    ("always", "reason"),
    [(GOOD, "the bad lane answers GOOD, not BAD"), (BAD, "the good lane answers BAD, not GOOD"),
     (INCONCLUSIVE, "the bad lane answers INCONCLUSIVE, not BAD")],
)  # fmt: skip
def test_lane_with_an_unexpected_answer_ends_the_search(always: TrialAnswer, reason: str) -> None:
    result = search.find([VLLM], lambda mixture, number: always)  # noqa: ARG005
    assert result.culprits == ()
    assert not result.certain
    assert result.reasons == (reason,)


def test_lanes_that_do_not_differ_have_no_culprit() -> None:
    result = search.find([], lambda mixture, number: BAD)  # noqa: ARG005
    assert result.reasons == ("the two lanes do not differ in anything that can be mixed",)


def test_release_that_cannot_be_judged_widens_the_answer_and_is_not_certain() -> None:
    def ask(mixture: Mixture, number: int) -> TrialAnswer:
        del number
        if mixture.version == ("vllm", "0.30.0"):
            return INCONCLUSIVE
        bad = "vllm" in mixture.changed or mixture.version == ("vllm", "0.31.0")
        return BAD if bad else GOOD

    result = search.find([VLLM], ask)
    (culprit,) = result.culprits
    assert (culprit.last_good, culprit.first_bad) == ("0.29.0", "0.31.0")
    assert culprit.untried == ("0.30.0",)
    assert not result.certain


def test_release_and_flag_are_found_together() -> None:
    def bad(mixture: Mixture) -> bool:
        new = "vllm" in mixture.changed or mixture.version == ("vllm", "0.31.0")
        flag = "flags" in mixture.changed or (
            mixture.items is not None and "second" in mixture.items[1]
        )
        return new and flag

    _, ask = asked_of(bad)
    result = search.find([FLAGS, VLLM], ask)
    by_axis = {culprit.axis: culprit for culprit in result.culprits}
    assert by_axis["flags"].items == ("second",)
    assert by_axis["vllm"].first_bad == "0.31.0"
    assert result.certain


def test_contradicting_answers_are_never_certain() -> None:
    dice = random.Random(1)  # noqa: S311

    def ask(mixture: Mixture, number: int) -> TrialAnswer:
        bad = "vllm" in mixture.changed or mixture.version == ("vllm", "0.31.0")
        flips = number == 2 or dice.random() < 0.02
        return BAD if bad != flips else GOOD

    result = search.find([VLLM], ask)
    assert not result.certain
    assert "gave two different answers" in result.reasons[0]


def test_contradicting_edge_makes_the_culprit_uncertain() -> None:
    three = ("a", "b", "c")
    flags = AxisSpan("flags", "x", "y", items=three)
    wrong = Mixture(frozenset({"flags"}))
    mixtures: list[Mixture] = []

    def ask(mixture: Mixture, number: int) -> TrialAnswer:
        mixtures.append(mixture)
        if mixture == wrong:
            return BAD if number == 1 else GOOD  # one undeclared wrong answer
        return BAD if "vllm" in mixture.changed else GOOD

    vllm = AxisSpan("vllm", "0.1", "0.2", ("0.1", "0.2"))
    result = search.find([flags, vllm], ask)
    assert not (result.certain and result.culprits[0].axis == "flags")


@pytest.mark.parametrize("seed", [36, 2])
def test_flaky_answers_that_nobody_declared_are_never_wrong_and_certain(seed: int) -> None:
    # One release gave the same wrong answer twice in 2 and 3 of these 300, when two were enough.
    row = bisect_search.tally("flaky, but not declared", 300, seed)
    assert row.wrong_and_certain == 0
