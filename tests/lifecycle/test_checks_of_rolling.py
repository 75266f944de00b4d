"""Lost requests and different answers are reported once per replica, with their number."""

from __future__ import annotations

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import checks_of_rolling as checks
from pytest_vllm_gates.lifecycle.balancer import BalancedRequest

PARIS = Completion(content="Paris", finish_reason="stop", token_ids=(1, 2))
FIRST = [("Where?", PARIS), ("Why?", Completion(error="answered 500"))]


def says(*requests: BalancedRequest, unanswered: int = 0) -> list[str]:
    findings, _ = checks.answers(FIRST, requests, unanswered, invariant=True)
    return [each.says for each in findings]


def test_the_same_answers_are_no_fault() -> None:
    assert says(BalancedRequest(0, "a", 0, PARIS), BalancedRequest(1, "b", 0, PARIS)) == []


def test_a_question_that_the_first_server_did_not_answer_is_not_compared() -> None:
    assert says(BalancedRequest(1, "a", 1, PARIS)) == []


def test_lost_requests_are_reported_once_per_replica() -> None:
    lost = Completion(error="ConnectError: refused")
    found = says(
        BalancedRequest(0, "a", 0, lost), BalancedRequest(2, "a", 0, lost),
        BalancedRequest(4, "b", 0, lost),
    )  # fmt: skip
    assert found == [
        "a: 'Where?': no answer: ConnectError: refused",
        "b: 'Where?': no answer: ConnectError: refused",
    ]


def test_a_different_answer_after_a_restart_is_reported() -> None:
    rome = Completion(content="Rome", finish_reason="stop", token_ids=(1, 3))
    (sentence,) = says(BalancedRequest(7, "first, boot 2", 0, rome))
    assert sentence.startswith("first, boot 2: 'Where?': alone 'Paris', now 'Rome'")


def test_requests_without_a_replica_are_reported() -> None:
    assert says(unanswered=3) == ["3 requests found no serving replica"]


def test_replicas_that_fail_or_do_not_end_are_reported() -> None:
    findings, cases = checks.restarts({"first": "out of memory"}, {"second": 2})
    assert [case.name for case in cases] == ["the first replica", "the second replica"]
    assert [each.says for each in findings] == [
        "it does not serve: out of memory",
        "2 requests are still open 30 s after the last one came: limit them by max_tokens, or "
        "raise the pod's terminationGracePeriodSeconds",
    ]
