"""A ramp goes up while rates are kept, down where even the first is not, and closes in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from load.test_checks import answer, phase
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.load.ramp import RampDriver, capacity, count
from pytest_vllm_gates.load.types import Limit
from pytest_vllm_gates.server.watchdog import Hang

if TYPE_CHECKING:
    from pytest_vllm_gates.load.types import Phase, RampStep

PLAN = planned_traffic({"ramp": {"growth": 2.0, "steps": 6, "refine": 2}}).ramp
SLOW = Limit("too slow", clients=False)


def climb(start: float, most: float, limit: Limit = SLOW) -> tuple[RampStep, ...]:
    """Climb on a server that keeps rates up to `most`."""
    return RampDriver(
        PLAN, lambda _: phase(), lambda rate, _: limit if rate > most else None
    ).climb(start)


def rates(steps: tuple[RampStep, ...]) -> list[float]:
    return [step.rate for step in steps]


def test_ramp_goes_up_then_bisects() -> None:
    steps = climb(1.0, 5.0)
    assert rates(steps) == pytest.approx([1, 2, 4, 8, 4 * math.sqrt(2), 4 * 2**0.25])
    assert capacity(steps) == pytest.approx(4 * 2**0.25)


def test_ramp_goes_down_if_the_first_rate_is_not_kept() -> None:
    steps = climb(8.0, 3.0)
    assert rates(steps)[:3] == [8, 4, 2]
    assert capacity(steps) == pytest.approx(2 * math.sqrt(2))


def test_ramp_ends_after_the_planned_steps() -> None:
    steps = climb(1.0, math.inf)
    assert rates(steps) == [1, 2, 4, 8, 16, 32]
    assert capacity(steps) == 32


def test_server_that_keeps_no_rate_has_no_capacity() -> None:
    steps = climb(1.0, 0.0)
    assert len(steps) == PLAN.steps
    assert capacity(steps) is None


def test_client_limit_ends_the_ramp() -> None:
    steps = climb(1.0, 3.0, Limit("this client falls behind", clients=True))
    assert rates(steps) == [1, 2, 4]


@pytest.mark.parametrize(
    "broken",
    [
        phase(hang=Hang(silent_s=30.0, running=8, waiting=2, health="200", stacks=None)),
        phase(replace(answer(0), error="the connection broke")),
    ],
    ids=["hangs", "answers nothing"],
)
def test_server_that_stops_answering_ends_the_ramp(broken: Phase) -> None:
    steps = RampDriver(PLAN, lambda _: broken, lambda *_: SLOW).climb(1.0)
    assert rates(steps) == [1.0]


@given(start=st.floats(0.01, 1000), most=st.floats(0.01, 1000))
def test_capacity_never_exceeds_what_the_server_keeps(start: float, most: float) -> None:
    steps = climb(start, most)
    assert len(steps) <= PLAN.steps + PLAN.refine
    highest = capacity(steps)
    assert highest is None or highest <= most
    kept_steps = [step for step in steps if not step.limit]
    if kept_steps and len(kept_steps) < len(steps):
        # Between kept and not kept lies the step, halved as often as it was refined.
        assert highest is not None
        assert most < highest * PLAN.growth ** (1 / 2**PLAN.refine) * 1.001


def test_a_step_has_enough_requests_for_a_percentile() -> None:
    plan = PLAN.model_copy(update={"seconds": 8.0})
    assert [count(rate, plan) for rate in (0.1, 2.5, 10.0)] == [20, 20, 80]
