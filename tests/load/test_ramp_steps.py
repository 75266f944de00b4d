"""The limits of single rates, and the capacity that follows from the steps of a ramp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from load.test_checks import answer, phase
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load import ramp
from pytest_vllm_gates.load.types import Limit, Phase, RampStep, Schedule
from pytest_vllm_gates.server.watchdog import Hang

TRAFFIC = planned_traffic()
RATE = 10.0


def offered(rate: float = RATE, served: float | None = None, count: int = 40, **more: Any) -> Phase:
    """Return a step at a constant rate whose answers end `served` a second."""
    each = 1 / (served or rate)
    times = tuple(number / rate for number in range(count))
    answers = [
        replace(answer(number, at), ended_s=1.0 + number * each) for number, at in enumerate(times)
    ]
    return phase(*answers, schedule=Schedule("constant", rate, times, times), **more)


def step(rate: float, why: str = "", *, clients: bool = False) -> RampStep:
    return RampStep(rate, offered(rate), Limit(why, clients) if why else None)


def test_a_rate_that_is_served_has_no_limit() -> None:
    assert ramp.limit(RATE, offered(), TRAFFIC) is None
    assert ramp.achieved(offered()) == pytest.approx(1.0)


def test_answers_of_many_lengths_are_not_saturation() -> None:
    phase_offered = offered()
    answers = [
        replace(request, ended_s=request.intended_s + 1.0 + (number * 7 % 10) / 10)
        for number, request in enumerate(phase_offered.answers)
    ]
    assert ramp.limit(RATE, replace(phase_offered, answers=tuple(answers)), TRAFFIC) is None


def test_fewer_answers_than_requests_a_second_are_a_limit() -> None:
    limit = ramp.limit(RATE, offered(served=8.0), TRAFFIC)
    assert limit == Limit(
        "8 of 10 requests per second are answered, 90% are required", clients=False
    )
    assert ramp.achieved(offered(served=8.0)) == pytest.approx(0.8)


def test_single_stall_of_the_machine_is_not_saturation() -> None:
    phase_offered = offered()
    late = phase_offered.answers[-8].ended_s + 1.5
    answers = [replace(request, ended_s=max(request.ended_s, late)) if number >= 32 else request
               for number, request in enumerate(phase_offered.answers)]  # fmt: skip
    assert ramp.limit(RATE, replace(phase_offered, answers=tuple(answers)), TRAFFIC) is None


def test_a_sample_of_many_answers_is_enough() -> None:
    assert ramp.achieved(offered(100.0, served=80.0, count=3000)) == pytest.approx(0.8)


def test_too_few_arrival_times_are_not_saturation() -> None:
    assert ramp.achieved(phase(answer(0), answer(1))) == 1.0
    errors = [replace(answer(number, number * 0.1), error="no") for number in range(9)]
    assert ramp.achieved(phase(*errors)) == 1.0


def test_a_late_first_token_is_a_limit() -> None:
    slow = phase(*(answer(number, number / RATE, each=3.0) for number in range(40)))
    limit = ramp.limit(RATE, slow, TRAFFIC)
    assert limit == Limit("p95 TTFT is 9.00 s, 6 s is the limit", clients=False)


def test_failed_requests_limit_with_their_commonest_error() -> None:
    phase_offered = offered()
    failed = replace(phase_offered.answers[0], error="answered 503: busy")
    limit = ramp.limit(
        RATE, replace(phase_offered, answers=(failed, *phase_offered.answers[1:])), TRAFFIC
    )
    assert limit == Limit("1 of 40 requests failed, mostly: answered 503: busy", clients=False)


def test_a_hang_is_a_limit() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    limit = ramp.limit(RATE, offered(hang=hang), TRAFFIC)
    assert limit
    assert "8 running, 2 waiting" in limit.why


def test_late_client_is_a_client_limit_despite_saturation() -> None:
    limit = ramp.limit(RATE, offered(served=5.0, late_s=(2.0,) * 40), TRAFFIC)
    assert limit == Limit("this client sent requests up to 2.00 s late (p99)", clients=True)


SATURATED = (step(8.0), step(12.0), step(18.0, "p95 TTFT is 7 s"), step(14.7))


def test_the_capacity_is_the_highest_rate_that_was_kept() -> None:
    assert ramp.capacity(SATURATED) == 14.7
    evidence = ramp.as_evidence(SATURATED)
    assert evidence["capacity_requests_per_s"] == 14.7
    assert (evidence["limited_at_requests_per_s"], evidence["limited_by"]) == (
        18.0,
        "p95 TTFT is 7 s",
    )
    assert [ramp_step["rate"] for ramp_step in evidence["steps"]] == [8.0, 12.0, 14.7, 18.0]


def test_rate_kept_above_a_failed_one_does_not_count() -> None:
    assert ramp.capacity((step(8.0), step(12.0, "slow"), step(18.0))) == 8.0


def test_planned_rate_within_capacity_is_not_reported() -> None:
    assert ramp.below(14.0, SATURATED) == ramp.undecided(14.0, SATURATED) == ""


def test_planned_rate_above_capacity_is_reported_with_limit() -> None:
    assert ramp.below(16.0, SATURATED) == (
        "16 requests a second are planned, and 14.7 a second are kept; at 18: p95 TTFT is 7 s"
    )
    assert ramp.undecided(16.0, SATURATED) == ""
    assert "no rate that was tried is kept" in ramp.below(8.0, (step(8.0, "slow"),))


def test_client_limit_leaves_the_server_undecided() -> None:
    steps = (step(8.0), step(12.0, "this client falls 1.00 s behind", clients=True))
    assert ramp.below(16.0, steps) == ""
    assert ramp.undecided(16.0, steps) == "at 12 requests a second: this client falls 1.00 s behind"
    assert ramp.undecided(8.0, steps) == ""
    assert ramp.as_evidence(steps)["clients_limit"]


def test_ramp_that_ended_too_early_is_undecided() -> None:
    assert ramp.undecided(16.0, (step(8.0), step(12.0))) == (
        "the ramp ended at 12 requests a second, 16 are planned"
    )
