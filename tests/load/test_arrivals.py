"""What went out otherwise than asked is told and called the client's; what went out so is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from load.test_checks import LIMITS, answer, phase
from pytest_vllm_gates.load import arrivals as judge
from pytest_vllm_gates.load.requests import arrivals as planned
from pytest_vllm_gates.load.types import Phase, Schedule

RATE = 20.0
COUNT = 200


def scheduled(process: str = "poisson", rate: float = RATE, **sent: float) -> Phase:
    """Return a phase whose requests went out late: `each` later than the one before, `by` all."""
    intended = planned("constant" if process == "constant" else "poisson", rate, COUNT, "arrivals")
    went = [at + sent.get("by", 0.001) + number * sent.get("each", 0.0) for number, at in
            enumerate(intended)]  # fmt: skip
    late = tuple(after - before for before, after in zip(intended, went, strict=True))
    asked = None if process == "trace" else rate
    return phase(late_s=late, schedule=Schedule(process, asked, tuple(intended), tuple(went)))


@pytest.mark.parametrize("process", ["poisson", "constant", "trace"])
def test_what_went_out_as_asked_is_not_told(process: str) -> None:
    found = scheduled(process)
    assert judge.not_as_asked(found) == ""
    assert judge.late(found, LIMITS) == ""
    assert judge.kept_back(found) == ""


def test_nothing_is_asked_of_streams() -> None:
    assert judge.not_as_asked(phase()) == ""
    assert judge.as_evidence(phase()) is None


@pytest.mark.parametrize("seed", ["arrivals", "trace", "ramp"])
def test_the_arrivals_the_gate_drives_are_poisson_ones_however_many(seed: str) -> None:
    times = planned("poisson", RATE, 1000, seed)
    for count in range(judge.FEWEST_GAPS + 1, 1000, 13):
        low, high = judge.tolerance(count - 1)
        found = judge.variation(times[:count])
        assert found is not None
        assert low <= found <= high, count


def test_the_tolerance_is_that_of_greenwoods_statistic() -> None:
    # 2000 Poisson processes of 100 gaps; one in a thousand is to be outside.
    low, high = judge.tolerance(100)
    found = [judge.variation(planned("poisson", 1.0, 101, f"seed {n}")) or 0.0 for n in range(2000)]
    assert sum(not low <= value <= high for value in found) <= 10
    assert sum(found) / len(found) == pytest.approx(100 / 101, abs=0.02)
    assert (low, high) == pytest.approx((0.513, 1.841), abs=0.001)


@given(rate=st.floats(0.01, 1e6), count=st.integers(3, 500))
def test_a_constant_rate_varies_by_nothing(rate: float, count: int) -> None:
    times = planned("constant", rate, count, "seed")
    assert judge.variation(times) == pytest.approx(0.0, abs=1e-6)
    assert (count - 1) / times[-1] == pytest.approx(rate)


@pytest.mark.parametrize("process", ["poisson", "constant", "trace"])
def test_a_client_that_falls_behind_is_told_as_the_clients(process: str) -> None:
    says = judge.not_as_asked(scheduled(process, each=0.05))
    assert says.startswith("this client falls ")
    assert "20 requests a second" in says or process != "constant"
    assert "and it sends 10" in says or process != "constant"
    assert says.endswith("that is its own limit, not the server's")


def test_a_moment_in_which_the_machine_stood_still_is_not_told() -> None:
    found = scheduled()
    assert found.schedule
    sent = [value or 0.0 for value in found.schedule.sent_s]
    begun = sent[-20]
    stuck = tuple(max(value, begun + 0.3) if value > begun else value for value in sent)
    assert judge.not_as_asked(replace(found, schedule=replace(found.schedule, sent_s=stuck))) == ""


def test_requests_of_one_moment_may_go_out_one_after_the_other() -> None:
    together = Schedule("trace", None, (0.0,) * 48, tuple(0.0001 * n for n in range(48)))
    assert judge.not_as_asked(phase(schedule=together)) == ""


@pytest.mark.parametrize(
    ("process", "says"),
    [
        ("poisson", "squared coefficient of variation is 0.00, 0.62 to 1.56 is what 199 gaps have"),
        ("constant", "a constant rate was asked for, and this client sent at uneven times"),
    ],
)
def test_arrivals_of_another_process_are_told(process: str, says: str) -> None:
    other = "constant" if process == "poisson" else "poisson"
    went = tuple(planned(other, RATE, COUNT, "arrivals"))
    found = phase(schedule=Schedule(process, RATE, went, went))
    assert says in judge.not_as_asked(found)


def test_how_much_gaps_vary_is_a_share_of_their_mean() -> None:
    assert judge.variation([0.0, 1.0, 4.0]) == 0.5
    assert judge.variation([0.0, 2.0, 4.0]) == 0.0
    assert judge.variation([0.0, 2.0]) is judge.variation([1.0, 1.0, 1.0]) is None


def test_too_few_gaps_say_nothing() -> None:
    went = tuple(planned("constant", RATE, judge.FEWEST_GAPS, "few"))
    assert judge.not_as_asked(phase(schedule=Schedule("poisson", RATE, went, went))) == ""


def test_requests_the_machine_kept_back_are_the_clients() -> None:
    errors = ["no socket: [Errno 24] Too many open files"] * 2 + ["answered 500: no"]
    answers = [replace(answer(number), error=error) for number, error in enumerate(errors)]
    says = judge.kept_back(phase(*answers))
    assert says.startswith("this client could not send 2 of 3 requests (no socket: [Errno 24]")
    assert judge.kept_back(phase(replace(answer(0), error="cannot connect: ECONNREFUSED"))) == ""


def test_what_never_went_out_is_no_lag() -> None:
    found = scheduled()
    assert found.schedule
    sent = tuple(
        None if number < 5 else value for number, value in enumerate(found.schedule.sent_s)
    )
    fewer = replace(found, schedule=replace(found.schedule, sent_s=sent))
    assert judge.not_as_asked(fewer) == ""
    told = judge.as_evidence(fewer)
    assert told
    assert (told["requests"], told["sent"]) == (COUNT, COUNT - 5)


def test_the_evidence_has_what_was_asked_and_what_came() -> None:
    told = judge.as_evidence(scheduled("constant"))
    assert told == {
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
    poisson = judge.as_evidence(scheduled())
    assert poisson
    assert poisson["squared_cv_tolerance"] == [0.622, 1.56]
