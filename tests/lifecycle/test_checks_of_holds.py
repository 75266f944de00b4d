"""Suspensions that change or cut answers, and wrong reports of readiness, are distinguished."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import checks_of_holds
from pytest_vllm_gates.lifecycle.types import Held, OpenOverHold

PARIS = Completion(content="Paris.", finish_reason="stop", token_ids=(1, 2))
ROME = Completion(content="Rome.", finish_reason="stop", token_ids=(1, 3))
FIRST = [("France?", PARIS), ("Italy?", ROME)]
RIGHT = Held(
    "sleep, level 1", "", health=200, told_held=True, told_after=False, waited=PARIS,
    answers=(PARIS,),
)  # fmt: skip


def test_a_server_that_resumes_as_before_yields_no_finding() -> None:
    findings, cases = checks_of_holds.answers(FIRST, [RIGHT], invariant=True)
    assert (findings, len(cases)) == ([], 2)
    findings, cases = checks_of_holds.told([RIGHT])
    assert (findings, len(cases)) == ([], 1)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (replace(RIGHT, answers=(ROME,)), "alone 'Paris.', now 'Rome.'"),
        (replace(RIGHT, waited=ROME), "alone 'Paris.', now 'Rome.'"),
        (replace(RIGHT, stuck="/wake_up: 500"), "it does not resume: /wake_up: 500"),
        (replace(RIGHT, waited=Completion(error="ReadTimeout: ")), "no answer: ReadTimeout"),
    ],
    ids=["other", "waited", "stuck", "lost"],
)
def test_a_different_answer_afterwards_is_reported(held: Held, says: str) -> None:
    (finding,), _ = checks_of_holds.answers(FIRST, [held], invariant=True)
    assert says in finding.says
    assert "sleep, level 1" in finding.case.name


def test_a_suspended_server_may_refuse_a_request() -> None:
    refused = replace(RIGHT, waited=Completion(error="answered 503: asleep"), early=True)
    assert checks_of_holds.answers(FIRST, [refused], invariant=True)[0] == []
    assert checks_of_holds.told([refused])[0] == []


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (replace(RIGHT, health=503), "/health answers 503 while suspended"),
        (replace(RIGHT, told_held=False), "it reports False while suspended"),
        (replace(RIGHT, told_after=True), "it reports True once it has resumed"),
        (replace(RIGHT, early=True), "a request is answered while suspended"),
    ],
    ids=["dead", "ready", "held", "early"],
)
def test_a_server_that_misreports_its_state_is_found(held: Held, says: str) -> None:
    (finding,), _ = checks_of_holds.told([held])
    assert says in finding.says


def test_a_way_that_a_server_does_not_offer_is_not_a_case() -> None:
    refused = Held("sleep, level 1", "/sleep: 404")
    assert checks_of_holds.answers(FIRST, [refused], invariant=True) == ([], [])
    assert checks_of_holds.told([refused]) == ([], [])


@pytest.mark.parametrize(
    ("keeps", "ended", "says"),
    [
        (True, PARIS, ""),
        (True, ROME, "the answer does not continue as before"),
        (True, Completion(content="Pa", finish_reason="abort"), "does not continue as before"),
        (False, Completion(content="Pa", finish_reason="abort"), ""),
        (False, Completion(error="ReadError: "), ""),
        (False, PARIS, ""),
        (False, Completion(content="Pa", finish_reason="stop"), "mistakes a part for the whole"),
    ],
)
def test_open_answers_continue_or_are_reported_as_broken_off(
    keeps: bool, ended: Completion, says: str
) -> None:
    over = OpenOverHold("pause", keeps, PARIS, ended)
    findings, cases = checks_of_holds.open_answers([over], invariant=True)
    assert len(cases) == 1
    assert bool(findings) is bool(says)
    assert all(says in finding.says for finding in findings)
