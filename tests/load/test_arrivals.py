"""Requests sent off schedule are reported as the client's limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from load.test_checks import LIMITS, answer, phase
from pytest_vllm_gates.load import arrivals
from pytest_vllm_gates.load.requests import arrivals as planned
from pytest_vllm_gates.load.types import Phase, Schedule

RATE = 20.0
COUNT = 200


def scheduled(process: str = "poisson", rate: float = RATE, **sent: float) -> Phase:
    """Return a phase whose requests went out late: `each` later than the one before, `by` all."""
    intended = planned("constant" if process == "constant" else "poisson", rate, COUNT, "arrivals")
    sent_s = [at + sent.get("by", 0.001) + number * sent.get("each", 0.0) for number, at in
            enumerate(intended)]  # fmt: skip
    late = tuple(after - before for before, after in zip(intended, sent_s, strict=True))
    planned_rate = None if process == "trace" else rate
    return phase(
        late_s=late, schedule=Schedule(process, planned_rate, tuple(intended), tuple(sent_s))
    )


@pytest.mark.parametrize("process", ["poisson", "constant", "trace"])
def test_requests_sent_on_schedule_raise_nothing(process: str) -> None:
    phase_sent = scheduled(process)
    assert arrivals.schedule_fault(phase_sent) == ""
    assert arrivals.late(phase_sent, LIMITS) == ""
    assert arrivals.send_fault(phase_sent) == ""


def test_streams_have_no_schedule_to_check() -> None:
    assert arrivals.schedule_fault(phase()) == ""
    assert arrivals.as_evidence(phase()) is None


@pytest.mark.parametrize("seed", ["arrivals", "trace", "ramp"])
def test_planned_poisson_arrivals_are_within_tolerance(seed: str) -> None:
    times = planned("poisson", RATE, 1000, seed)
    for count in range(arrivals.FEWEST_GAPS + 1, 1000, 13):
        low, high = arrivals.tolerance(count - 1)
        squared_cv = arrivals.variation(times[:count])
        assert squared_cv is not None
        assert low <= squared_cv <= high, count


def test_tolerance_matches_greenwoods_statistic() -> None:
    # 2000 Poisson processes of 100 gaps; one in a thousand is to be outside.
    low, high = arrivals.tolerance(100)
    squared_cvs = [
        arrivals.variation(planned("poisson", 1.0, 101, f"seed {n}")) or 0.0 for n in range(2000)
    ]
    assert sum(not low <= value <= high for value in squared_cvs) <= 10
    assert sum(squared_cvs) / len(squared_cvs) == pytest.approx(100 / 101, abs=0.02)
    assert (low, high) == pytest.approx((0.513, 1.841), abs=0.001)


@given(rate=st.floats(0.01, 1e6), count=st.integers(3, 500))
def test_constant_rate_has_no_variation(rate: float, count: int) -> None:
    times = planned("constant", rate, count, "seed")
    assert arrivals.variation(times) == pytest.approx(0.0, abs=1e-6)
    assert (count - 1) / times[-1] == pytest.approx(rate)


@pytest.mark.parametrize("process", ["poisson", "constant", "trace"])
def test_growing_lag_is_reported_as_client_limit(process: str) -> None:
    message = arrivals.schedule_fault(scheduled(process, each=0.05))
    assert message.startswith("this client falls ")
    assert "20 requests per second" in message or process != "constant"
    assert "and it sends 10" in message or process != "constant"
    assert message.endswith("that is its own limit, not the server's")


def test_single_stall_of_the_machine_is_not_reported() -> None:
    phase_sent = scheduled()
    assert phase_sent.schedule
    sent = [value or 0.0 for value in phase_sent.schedule.sent_s]
    begun = sent[-20]
    stuck = tuple(max(value, begun + 0.3) if value > begun else value for value in sent)
    assert (
        arrivals.schedule_fault(
            replace(phase_sent, schedule=replace(phase_sent.schedule, sent_s=stuck))
        )
        == ""
    )


def test_simultaneous_requests_may_be_sent_in_sequence() -> None:
    together = Schedule("trace", None, (0.0,) * 48, tuple(0.0001 * n for n in range(48)))
    assert arrivals.schedule_fault(phase(schedule=together)) == ""


@pytest.mark.parametrize(
    ("process", "message"),
    [
        ("poisson", "squared coefficient of variation is 0.00, expected 0.62 to 1.56 for 199 gaps"),
        ("constant", "a constant rate was planned, and this client sent at uneven times"),
    ],
)
def test_wrong_arrival_process_is_reported(process: str, message: str) -> None:
    another_process = "constant" if process == "poisson" else "poisson"
    times = tuple(planned(another_process, RATE, COUNT, "arrivals"))
    phase_sent = phase(schedule=Schedule(process, RATE, times, times))
    assert message in arrivals.schedule_fault(phase_sent)


def test_variation_is_relative_to_the_mean_gap() -> None:
    assert arrivals.variation([0.0, 1.0, 4.0]) == 0.5
    assert arrivals.variation([0.0, 2.0, 4.0]) == 0.0
    assert arrivals.variation([0.0, 2.0]) is arrivals.variation([1.0, 1.0, 1.0]) is None


def test_too_few_gaps_are_not_judged() -> None:
    times = tuple(planned("constant", RATE, arrivals.FEWEST_GAPS, "few"))
    assert arrivals.schedule_fault(phase(schedule=Schedule("poisson", RATE, times, times))) == ""


def test_requests_the_machine_refused_are_client_errors() -> None:
    errors = ["no socket: [Errno 24] Too many open files"] * 2 + ["answered 500: no"]
    answers = [replace(answer(number), error=error) for number, error in enumerate(errors)]
    message = arrivals.send_fault(phase(*answers))
    assert message.startswith("this client could not send 2 of 3 requests (no socket: [Errno 24]")
    assert (
        arrivals.send_fault(phase(replace(answer(0), error="cannot connect: ECONNREFUSED"))) == ""
    )


def test_unsent_requests_add_no_lag() -> None:
    phase_sent = scheduled()
    assert phase_sent.schedule
    sent = tuple(
        None if number < 5 else value for number, value in enumerate(phase_sent.schedule.sent_s)
    )
    fewer = replace(phase_sent, schedule=replace(phase_sent.schedule, sent_s=sent))
    assert arrivals.schedule_fault(fewer) == ""
    evidence = arrivals.as_evidence(fewer)
    assert evidence
    assert (evidence["requests"], evidence["sent"]) == (COUNT, COUNT - 5)


def test_evidence_has_planned_and_sent_rates() -> None:
    evidence = arrivals.as_evidence(scheduled("constant"))
    assert evidence == {
        "process": "constant",
        "rate": 20.0,
        "requests": 200,
        "sent": 200,
        "intended_per_s": 20.0,
        "sent_per_s": 20.0,
        "squared_cv_intended": 0.0,
        "squared_cv_sent": 0.0,
        "squared_cv_tolerance": None,
        "dispatch_error_p99_s": 0.001,
    }
    poisson = arrivals.as_evidence(scheduled())
    assert poisson
    assert poisson["squared_cv_tolerance"] == [0.622, 1.56]
