"""The figures of a phase have their usual names and are compared with their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from load.test_checks import IDLE, LIMITS, TOKENS, USERS, answer, phase
from pytest_vllm_gates.load import latency

if TYPE_CHECKING:
    from pytest_vllm_gates.load.types import AnsweredRequest


def test_figures_have_their_usual_names() -> None:
    figures = latency.figures(phase(), LIMITS)
    assert figures["output_tokens_per_s"] == USERS * TOKENS / 2.0
    assert figures["requests_per_s"] == figures["goodput_per_s"] == 2.0
    assert figures["ttft_s"]["p50"] == pytest.approx(0.06)
    assert figures["itl_s"]["p99"] == pytest.approx(0.02)
    assert figures["counted_by"] == ["usage"]
    assert figures["sent_late_p99_s"] == 0.001


def test_figures_are_rounded_and_missing_ones_left_out() -> None:
    short = replace(answer(1), tokens=((0.5, 1),), ended_s=0.75)
    uneven = replace(answer(2), tokens=((1 / 3, 1), (4 / 3, 1), (1.5, 1)), ended_s=2.0)
    late = (1 / 3, 1 / 7)
    figures = latency.figures(phase(short, uneven, took_s=3.0, late_s=late), LIMITS)
    assert figures == {
        "output_tokens_per_s": 1.33,
        "requests_per_s": 0.667,
        "goodput_per_s": 0.333,
        "ttft_s": {"p50": 0.4167, "p90": 0.4833, "p95": 0.4917, "p99": 0.4983},
        "itl_s": {"p50": 0.5833, "p90": 0.9167, "p95": 0.9583, "p99": 0.9917},
        "tpot_s": {"p50": 0.5833, "p90": 0.5833, "p95": 0.5833, "p99": 0.5833},
        "e2e_s": {"p50": 1.375, "p90": 1.875, "p95": 1.9375, "p99": 1.9875},
        "sent_late_p99_s": 0.3314,
        "counted_by": ["usage"],
    }
    nothing = latency.figures(phase(replace(answer(1), error="no"), late_s=()), LIMITS)
    assert "ttft_s" not in nothing
    assert nothing["sent_late_p99_s"] is None


def beyond(*answers: AnsweredRequest, **limits: Any) -> list[str]:
    return [*latency.beyond(phase(*answers), LIMITS.model_copy(update=limits))]


def test_a_request_is_good_within_both_of_its_limits() -> None:
    late = [answer(number, each=0.5) for number in range(2)]
    good = [answer(number) for number in range(2, 4)]
    figures = latency.figures(phase(*late, *good), LIMITS)
    assert (figures["requests_per_s"], figures["goodput_per_s"]) == (2.0, 1.0)
    strict = LIMITS.model_copy(update={"ttft_p95_s": 0.01})
    assert latency.figures(phase(*late, *good), strict)["goodput_per_s"] == 0.0


def test_value_at_its_limit_is_within_it() -> None:
    request = replace(answer(0), tokens=((0.25, 1), (0.5, 1)), ended_s=0.5)
    failed = replace(answer(1), error="no")
    at_its_limits = {"ttft_p95_s": 0.25, "itl_p95_s": 0.25, "slo_attainment": 0.5}
    assert beyond(request, failed, **at_its_limits) == []
    assert beyond(request, failed, **{**at_its_limits, "slo_attainment": 0.51}) == [
        "50% of the requests had their first token within 0.25 s and then at most 250 ms a token, "
        "51% have to"
    ]
    assert beyond(request, **{**at_its_limits, "itl_p95_s": 0.125})[0] == (
        "p95 ITL is 250 ms, 125 ms is the limit"
    )
    assert beyond(request, **{**at_its_limits, "ttft_p95_s": 0.2})[0] == (
        "p95 TTFT is 0.25 s, 0.2 s is the limit"
    )


def test_one_token_has_no_itl_and_no_answer_has_no_figures() -> None:
    request = replace(answer(0), tokens=((0.25, 1),), ended_s=0.5)
    assert beyond(request) == []
    assert beyond(replace(request, error="no")) == []


@pytest.mark.parametrize(
    ("before", "after", "starts"),
    [(2, 5, ["3 requests"]), (2, 4, []), (None, 5, []), (2, None, [])],
)
def test_preemptions_are_those_of_the_phase(
    before: int | None, after: int | None, starts: list[str]
) -> None:
    figures = [
        None if number is None else replace(IDLE, preempted=number) for number in (before, after)
    ]
    measured = replace(phase(), before=figures[0], after=figures[1])
    messages = latency.beyond(measured, LIMITS.model_copy(update={"preemptions": 2}))
    assert [message[:10] for message in messages] == starts
    none = latency.beyond(measured, LIMITS.model_copy(update={"preemptions": 0}))
    assert len([*none]) == (None not in figures)
