"""After thousands of requests, the server answers as it did at first, and does not wear out.

Catches faults that the first minutes do not show: answers that become wrong after some hundred
requests, conversations that get another's turns, memory and sockets that are not released,
tokens per second that drop. Off by default: request it with --endurance 2000, or 30m.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.endurance import checks
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.endurance.types import EndurancePlan, EnduranceResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.endurance

FEW = "the run has too few blocks to detect a drift: request more with --endurance"


def test_known_answers_stay_as_they_were(
    endured: EnduranceResult, endurance_plan: EndurancePlan, evidence: Evidence
) -> None:
    evidence["endurance"] = endured.as_evidence()
    wrong, doubt = checks.canaries(endured, endurance_plan)
    assert not wrong, f"known answers have changed: {wrong}"
    if doubt:
        raise Inconclusive(doubt)


def test_every_turn_is_answered_for_its_own_agent(
    endured: EnduranceResult, checking: Checking
) -> None:
    checking(*checks.others(endured), "an agent gets no answer, or another agent's")
    if doubt := checks.too_few_nonces(endured):
        raise Inconclusive(doubt)


def test_memory_and_handles_do_not_grow(
    endured: EnduranceResult, endurance_plan: EndurancePlan
) -> None:
    wrong, seen = checks.growth(endured, endurance_plan)
    if not seen:
        raise NotApplicable("the server's processes cannot be seen, or the run was short")
    assert not wrong, "\n".join(wrong)


def test_tokens_per_second_do_not_sink(
    endured: EnduranceResult, endurance_plan: EndurancePlan, evidence: Evidence
) -> None:
    wrong, doubt, found = checks.sinking(endured, endurance_plan)
    if found is None:
        raise NotApplicable(FEW)
    evidence["drift"] = dataclasses.asdict(found)
    assert not wrong, wrong
    if doubt:
        raise Inconclusive(doubt)
