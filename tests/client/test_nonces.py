"""The nonce in an answer is its own request's or another's."""

from __future__ import annotations

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.client.questions import ended_in_thinking, ticket_faults

NONCES = ("aa11", "bb22", "cc33")


def test_an_answer_with_its_own_nonce_is_right() -> None:
    assert ticket_faults(Completion(content="ticket bb22"), NONCES, 1) == []
    assert ticket_faults(Completion(reasoning="ticket bb22"), NONCES, 1) == []


def test_anothers_nonce_is_a_fault_that_names_its_owner() -> None:
    assert ticket_faults(Completion(content="ticket bb22 ticket cc33"), NONCES, 1) == [
        "the answer contains 'cc33', which is request 3's: 'ticket bb22 ticket cc33'"
    ]


def test_an_answer_without_its_own_nonce_is_a_fault() -> None:
    assert ticket_faults(Completion(content="ticket aa11"), NONCES, 1) == [
        "the answer contains 'aa11', which is request 1's: 'ticket aa11'",
        "the answer does not contain its own 'bb22': 'ticket aa11'",
    ]
    assert ticket_faults(Completion(), NONCES, 0) == [
        "the answer does not contain its own 'aa11': ''"
    ]


def test_no_answer_is_a_fault() -> None:
    assert ticket_faults(Completion(error="timed out"), NONCES, 0) == ["no answer: timed out"]


def test_an_answer_without_content_ended_in_its_thinking() -> None:
    assert ended_in_thinking(Completion(reasoning="Well"))
    assert not ended_in_thinking(Completion())
    assert not ended_in_thinking(Completion(reasoning="Well", content="ticket bb22"))
    assert not ended_in_thinking(Completion(reasoning="Well", calls=(("look", "{}"),)))
