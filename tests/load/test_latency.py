"""Latencies, goodput and percentiles, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pytest_vllm_gates.load.latency import LatencyLimits, goodput, latency, percentile
from pytest_vllm_gates.load.types import AnsweredRequest


def answer(
    *tokens: tuple[float, int], intended: float = 1.0, ended: float = 9.0
) -> AnsweredRequest:
    return AnsweredRequest("r", intended, ended, 5, tokens, "usage")


def test_latencies_count_from_the_intended_time() -> None:
    figures = latency(answer((3.0, 1), (4.0, 2), (4.5, 1)))
    assert figures is not None
    assert figures.ttft_s == 2.0
    assert figures.itl_s == (0.5, 0.5, 0.5)
    assert figures.tpot_s == 0.5
    assert figures.e2e_s == 8.0


def test_tokens_of_one_packet_have_no_inter_token_latency() -> None:
    figures = latency(answer((3.0, 4)))
    assert figures is not None
    assert figures.itl_s == ()
    assert figures.tpot_s == 0.0


def test_one_token_has_no_time_per_token() -> None:
    figures = latency(answer((3.0, 1)))
    assert figures is not None
    assert figures.tpot_s is None


def test_incomplete_answers_have_no_latency() -> None:
    assert latency(answer()) is None
    assert latency(AnsweredRequest("r", 1.0, 2.0, 5, ((1.5, 1),), "usage", "answered 500")) is None


def test_goodput_counts_requests_that_meet_every_limit() -> None:
    answers = [answer((2.0, 1)), answer((4.0, 1)), answer((2.0, 1), (8.0, 1)), answer()]
    assert goodput(answers, LatencyLimits(), 2.0) == 1.5
    assert goodput(answers, LatencyLimits(ttft_s=1.0), 2.0) == 1.0
    assert goodput(answers, LatencyLimits(ttft_s=1.0, tpot_s=1.0), 2.0) == 0.5
    assert goodput(answers, LatencyLimits(e2e_s=1.0), 2.0) == 0.0
    assert goodput(answers, LatencyLimits(e2e_s=8.0), 2.0) == 1.5
    assert goodput(answers, LatencyLimits(tpot_s=0.5), 2.0) == 1.0
    assert goodput(answers, LatencyLimits(tpot_s=6.0), 2.0) == 1.5


def test_percentiles_are_interpolated_linearly() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.95) == 9.5
    assert percentile([0.0, 1.0, 5.0, 9.0], 0.5) == 3.0
    assert percentile([4.0], 0.99) == 4.0
    with pytest.raises(ValueError, match=r"^a percentile needs"):
        percentile([], 0.5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_percentiles_are_within_the_values_and_in_order(
    values: list[float], first_share: float, second_share: float
) -> None:
    low, high = sorted((first_share, second_share))
    assert min(values) - 1e-6 <= percentile(values, low)
    assert percentile(values, low) <= percentile(values, high) + 1e-6
    assert percentile(values, high) <= max(values) + 1e-6
