"""What kept a rate from being served, and the capacity that follows from the steps of a ramp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from load.test_checks import answer, phase
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load import ramp as judge
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
    assert judge.limit(RATE, offered(), TRAFFIC) is None
    assert judge.achieved(offered()) == pytest.approx(1.0)


def test_answers_of_many_lengths_do_not_saturate_a_server() -> None:
    found = offered()
    answers = [
        replace(request, ended_s=request.intended_s + 1.0 + (number * 7 % 10) / 10)
        for number, request in enumerate(found.answers)
    ]
    assert judge.limit(RATE, replace(found, answers=tuple(answers)), TRAFFIC) is None


def test_fewer_answers_than_requests_a_second_are_a_limit() -> None:
    limit = judge.limit(RATE, offered(served=8.0), TRAFFIC)
    assert limit == Limit("8 of 10 requests a second are answered, 90% have to be", clients=False)
    assert judge.achieved(offered(served=8.0)) == pytest.approx(0.8)


def test_a_moment_in_which_the_machine_stood_still_does_not_saturate_a_server() -> None:
    found = offered()
    late = found.answers[-8].ended_s + 1.5
    answers = [replace(request, ended_s=max(request.ended_s, late)) if number >= 32 else request
               for number, request in enumerate(found.answers)]  # fmt: skip
    assert judge.limit(RATE, replace(found, answers=tuple(answers)), TRAFFIC) is None


def test_of_many_answers_some_are_enough() -> None:
    assert judge.achieved(offered(100.0, served=80.0, count=3000)) == pytest.approx(0.8)


def test_too_few_times_say_nothing_of_saturation() -> None:
    assert judge.achieved(phase(answer(0), answer(1))) == 1.0
    errors = [replace(answer(number, number * 0.1), error="no") for number in range(9)]
    assert judge.achieved(phase(*errors)) == 1.0


def test_a_late_first_token_is_a_limit() -> None:
    slow = phase(*(answer(number, number / RATE, each=3.0) for number in range(40)))
    limit = judge.limit(RATE, slow, TRAFFIC)
    assert limit == Limit("p95 TTFT is 9.00 s, 6 s is the limit", clients=False)


def test_failed_requests_are_a_limit_and_the_commonest_error_is_told() -> None:
    found = offered()
    failed = replace(found.answers[0], error="answered 503: busy")
    limit = judge.limit(RATE, replace(found, answers=(failed, *found.answers[1:])), TRAFFIC)
    assert limit == Limit("1 of 40 requests failed, mostly: answered 503: busy", clients=False)


def test_a_hang_is_a_limit() -> None:
    hang = Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)
    limit = judge.limit(RATE, offered(hang=hang), TRAFFIC)
    assert limit
    assert "8 running, 2 waiting" in limit.why


def test_a_client_that_is_late_is_its_own_limit_whatever_came() -> None:
    limit = judge.limit(RATE, offered(served=5.0, late_s=(2.0,) * 40), TRAFFIC)
    assert limit == Limit("this client sent requests up to 2.00 s late (p99)", clients=True)


SATURATED = (step(8.0), step(12.0), step(18.0, "p95 TTFT is 7 s"), step(14.7))


def test_the_capacity_is_the_highest_rate_that_was_kept() -> None:
    assert judge.capacity(SATURATED) == 14.7
    told = judge.as_evidence(SATURATED)
    assert told["capacity_requests_per_s"] == 14.7
    assert (told["limited_at_requests_per_s"], told["limited_by"]) == (18.0, "p95 TTFT is 7 s")
    assert [entry["rate"] for entry in told["steps"]] == [8.0, 12.0, 14.7, 18.0]


def test_a_rate_kept_by_luck_above_one_that_was_not_does_not_count() -> None:
    assert judge.capacity((step(8.0), step(12.0, "slow"), step(18.0))) == 8.0


def test_a_planned_rate_the_server_keeps_is_not_told() -> None:
    assert judge.below(14.0, SATURATED) == judge.undecided(14.0, SATURATED) == ""


def test_a_planned_rate_beyond_the_capacity_is_told_with_what_limits_it() -> None:
    assert judge.below(16.0, SATURATED) == (
        "16 requests a second are planned, and 14.7 a second are kept; at 18: p95 TTFT is 7 s"
    )
    assert judge.undecided(16.0, SATURATED) == ""
    assert "no rate that was tried is kept" in judge.below(8.0, (step(8.0, "slow"),))


def test_the_clients_limit_decides_nothing_of_the_server() -> None:
    steps = (step(8.0), step(12.0, "this client falls 1.00 s behind", clients=True))
    assert judge.below(16.0, steps) == ""
    assert (
        judge.undecided(16.0, steps) == "at 12 requests a second: this client falls 1.00 s behind"
    )
    assert judge.undecided(8.0, steps) == ""
    assert judge.as_evidence(steps)["clients_limit"]


def test_a_ramp_that_ended_too_early_decides_nothing() -> None:
    assert judge.undecided(16.0, (step(8.0), step(12.0))) == (
        "the ramp ended at 12 requests a second, 16 are planned"
    )
