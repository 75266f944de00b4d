"""Alarms by odds among many gates: a clear one stays, one in a hundred does not."""

from __future__ import annotations

import random

import pytest

from pytest_vllm_gates.fleet.alarms import corrected
from pytest_vllm_gates.outcomes import Outcome, TestResult


def measured(alarm: float | None, family: str = "glm", gate: str = "throughput") -> TestResult:
    outcome = Outcome.FAIL if alarm is not None and alarm <= 1 else Outcome.PASS
    reason = "REGRESSION: -6.0% tokens/s\nagainst 3 boots" if outcome is Outcome.FAIL else ""
    evidence = {} if alarm is None else {"decision": {"alarm": alarm}}
    return TestResult(family, gate, "test_speed", outcome, reason, evidence=evidence)


def test_alarm_of_one_gate_stands() -> None:
    results, sentences = corrected([measured(0.9), measured(None)])
    assert [result.outcome for result in results] == ["FAIL", "PASS"]
    assert sentences == []


def test_alarm_just_clear_enough_for_one_gate_is_unclear_among_sixty() -> None:
    results, (sentence,) = corrected([measured(0.9), *(measured(50.0) for _ in range(59))])
    assert results[0].outcome is Outcome.INCONCLUSIVE
    assert "one of 60 gates" in results[0].reason
    assert "REGRESSION: -6.0% tokens/s" in sentence


def test_clear_alarms_stay_in_the_order_of_holm() -> None:
    # Four gates: below 1/4, then 1/3, then not below 1/2, after which no alarm stays.
    alarms = [0.6, 0.2, 0.3, 0.9]
    results, sentences = corrected([measured(alarm) for alarm in alarms])
    assert [result.outcome for result in results] == [
        "INCONCLUSIVE",
        "FAIL",
        "FAIL",
        "INCONCLUSIVE",
    ]
    assert len(sentences) == 2


def test_failure_of_another_gate_does_not_depend_on_odds() -> None:
    results, _ = corrected([measured(0.9, gate="tools"), *(measured(9.0) for _ in range(9))])
    assert results[0].outcome is Outcome.FAIL


@pytest.mark.parametrize("gates", [1, 9, 63])
def test_clean_fleets_alarm_no_more_often_than_one_gate(gates: int) -> None:
    """At most 1 % of 1,000 clean fleets are rejected, within chance (binomial)."""
    draw = random.Random(gates)  # noqa: S311 - it hides nothing
    rejected = sum(
        any(
            result.outcome is Outcome.FAIL
            for result in corrected([measured(draw.random() / 0.01) for _ in range(gates)])[0]
        )
        for _ in range(1000)
    )
    assert rejected <= 20
