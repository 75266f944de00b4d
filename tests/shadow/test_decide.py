"""PROMOTE, REJECT or HOLD for counts and figures, with the pairs that a decision still needs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.shadow import settings as shadow_settings
from pytest_vllm_gates.shadow.decide import HOLD, PROMOTE, REJECT, Question, ShadowDecision, decide
from pytest_vllm_gates.shadow.tally import PairJudgement, SideJudgement, Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SETTINGS = shadow_settings.load()
QUESTION = Question()


def pair(
    stable: Sequence[str] = (),
    canary: Sequence[str] = (),
    figures: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
) -> PairJudgement:
    first, second = (
        SideJudgement(dict.fromkeys(kinds, "wrong"), values)
        for kinds, values in zip((stable, canary), figures, strict=True)
    )
    return PairJudgement(first, second)


def decided(pairs: Sequence[PairJudgement], *, forecast: bool = False) -> ShadowDecision:
    tally = Tally(SETTINGS.kinds, SETTINGS.figures)
    for each in pairs:
        tally.add(each)
    return decide(tally, SETTINGS, QUESTION, forecast=forecast)


def test_nothing_seen_holds() -> None:
    decision = decided([])
    assert decision.promotion == HOLD
    assert decision.reasons[0] == "0 of at least 500 pairs are judged"


def test_a_canary_without_a_failure_is_promoted_after_enough_pairs() -> None:
    few = decided([pair()] * 600, forecast=True)
    assert few.promotion == HOLD
    assert few.more_pairs is not None
    assert decided([pair()] * (600 + few.more_pairs)).promotion == PROMOTE


def test_two_failures_of_a_hard_kind_reject() -> None:
    one = decided([pair()] * 250 + [pair(canary=["framing"])] + [pair()] * 249)
    assert one.promotion == HOLD
    two = decided([pair()] * 498 + [pair(canary=["framing"])] * 2)
    assert two.promotion == REJECT
    assert two.reasons[0].startswith("framing: the canary alone fails 2 times")
    assert "wrong" in two.reasons[0]


def test_one_failure_alone_rejects_nothing_though_it_be_the_first_pair() -> None:
    assert decided([pair(canary=["framing"])]).promotion == HOLD


@pytest.mark.parametrize("stable", [["framing"], []])
def test_a_hard_kind_that_the_stable_server_breaks_is_compared(stable: list[str]) -> None:
    """Once is enough: the rate is then not what a right server of this kind has."""
    both = pair(["framing"], ["framing"]) if not stable else pair(stable)
    decision = decided([both] + [pair()] * 400 + [pair(canary=["framing"])] * 5)
    assert decision.promotion == HOLD
    state = next(each for each in decision.kinds if each.name == "framing")
    assert state.test == "compared"


def test_five_failures_of_a_soft_kind_hold_and_thirty_reject() -> None:
    assert decided([pair()] * 495 + [pair(canary=["call"])] * 5).promotion == HOLD
    assert decided([pair()] * 470 + [pair(canary=["call"])] * 30).promotion == REJECT


def test_a_soft_kind_that_both_break_as_often_is_promoted() -> None:
    pairs = [pair()] * 3000 + [pair(["call"]), pair(canary=["call"])] * 10
    assert decided(pairs).promotion == PROMOTE


def test_a_kind_that_stays_worse_by_more_than_the_margin_is_not_near_a_promotion() -> None:
    decision = decided([pair()] * 970 + [pair(["call"])] * 10 + [pair(canary=["call"])] * 25,
                       forecast=True)  # fmt: skip
    assert decision.promotion == HOLD
    assert decision.more_pairs is None


def test_the_forecast_of_a_rejection_comes_true() -> None:
    seen = [pair()] * 92 + [pair(canary=["call"])] * 8
    state = next(each for each in decided(seen, forecast=True).kinds if each.name == "call")
    assert state.until_reject is not None and state.until_reject > 0
    times = (100 + state.until_reject) / 100
    more = [pair()] * round(92 * times) + [pair(canary=["call"])] * round(8 * times)
    assert decided(more).promotion == REJECT


def timed(ratio: float, pairs: int) -> list[PairJudgement]:
    made = random.Random(3)
    return [
        pair(figures=({"ttft_s": made.gauss(1, 0.1)}, {"ttft_s": ratio * made.gauss(1, 0.1)}))
        for _ in range(pairs)
    ]


def test_latency_within_the_ratio_is_promoted_and_beyond_it_rejected() -> None:
    assert decided(timed(1.0, 2000)).promotion == PROMOTE
    slow = decided(timed(1.6, 2000))
    assert slow.promotion == REJECT
    assert slow.reasons[0].startswith("ttft_s p50: stable 0.99")


def test_latency_that_is_not_certain_holds_and_reports_how_many_pairs() -> None:
    decision = decided(timed(1.2, 1100), forecast=True)
    assert decision.promotion == HOLD
    assert decision.more_pairs


def test_shorter_answers_are_as_wrong_as_longer_ones_and_faster_ones_are_not() -> None:
    def with_figures(name: str, canary: float) -> list[PairJudgement]:
        made = random.Random(5)
        return [
            pair(figures=({name: made.gauss(100, 5)}, {name: canary * made.gauss(100, 5)}))
            for _ in range(1500)
        ]

    assert decided(with_figures("tokens", 0.3)).promotion == REJECT
    assert decided(with_figures("ttft_s", 0.3)).promotion == PROMOTE


def test_a_figure_of_few_answers_delays_nothing() -> None:
    decision = decided([pair()] * 2000 + timed(1.2, 40))
    assert decision.promotion == PROMOTE


def test_the_chances_of_all_tests_add_up_to_alpha() -> None:
    decision = decided([pair(figures=(dict.fromkeys(SETTINGS.figures, 1.0),) * 2)] * 10)
    absolute = QUESTION.alpha * SETTINGS.shares.absolute
    hard = sum(1 / state.needed for state in decision.kinds if state.test == "absolute")
    figures = sum(state.levels[0] for state in decision.figures)
    compared = len(decision.kinds) * (
        QUESTION.alpha * SETTINGS.shares.compared / len(SETTINGS.kinds)
    )
    assert hard <= absolute * 1.0001
    assert len(SETTINGS.hard) * (absolute / len(SETTINGS.hard)) + compared + figures == (
        pytest.approx(QUESTION.alpha)
    )


def test_pairs_that_are_not_judged_are_counted_by_the_reason() -> None:
    tally = Tally(SETTINGS.kinds, SETTINGS.figures)
    tally.add(PairJudgement(left_out="too large"))
    assert tally.pairs == 0
    assert tally.left_out == {"too large": 1}


def test_the_figures_of_the_page_are_right() -> None:
    assert decided([pair()] * 1998 + [pair(canary=["framing"])] * 2).promotion == REJECT
    assert decided([pair(canary=["call"])] * 18).promotion == HOLD
    assert decided([pair(canary=["call"])] * 19).promotion == REJECT
    assert decided([pair()] * 1022).promotion == HOLD
    assert decided([pair()] * 1023).promotion == PROMOTE
    caught = 1 - 0.99**500 - 500 * 0.01 * 0.99**499
    assert round(caught, 2) == 0.96
