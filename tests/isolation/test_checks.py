"""Clients that left free their slots, unless that cannot be judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.isolation.cancel import CancelResult
from pytest_vllm_gates.isolation.checks import fault, why_undecided


def cancel_result(before: int, during: int, after: int, tokens_before: int = 200) -> CancelResult:
    return CancelResult(
        streamed=True, clients=4, asked_tokens=16000, before=before, during=during, after=after,
        tokens_before=tokens_before, tokens_after=4100, seconds=6.5,
    )  # fmt: skip


def test_freed_slots_have_no_fault() -> None:
    result = cancel_result(0, 4, 0)
    assert why_undecided(result, alone=False) is None
    assert fault(result) is None


def test_requests_that_still_run_are_a_fault() -> None:
    result = cancel_result(0, 4, 4)
    assert why_undecided(result, alone=False) is None
    sentence = fault(result)
    assert sentence is not None
    assert "4 clients left, but 4 of their requests still run 6.5 s later: 4100 tokens" in sentence


def test_one_running_request_is_a_fault_on_an_own_server() -> None:
    result = cancel_result(0, 4, 1)
    assert why_undecided(result, alone=True) is None
    assert "1 of their requests" in str(fault(result))


def test_requests_that_may_be_others_are_undecided_on_a_shared_server() -> None:
    """Slots were freed within a second, and others took them."""
    result = replace(cancel_result(0, 4, 4), others=True)
    assert fault(result)
    assert why_undecided(result, alone=True) is None
    assert "use this server, and the 4 requests" in str(why_undecided(result, alone=False))
    assert why_undecided(replace(result, after=0), alone=False) is None


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (cancel_result(0, 4, 1), "they may come from other clients"),
        (cancel_result(2, 6, 2), "other clients use this server: 2 requests were in flight"),
        (cancel_result(2, 6, 6), "other clients use this server"),
        (cancel_result(0, 2, 0), "only 2 of 4 requests were seen in flight"),
    ],
)
def test_requests_of_others_are_undecided(result: CancelResult, sentence: str) -> None:
    why = why_undecided(result, alone=False)
    assert why is not None
    assert sentence in why


def test_an_empty_server_is_always_judged() -> None:
    assert why_undecided(cancel_result(2, 6, 0), alone=False) is None


def test_requests_that_never_arrived_are_undecided() -> None:
    assert why_undecided(cancel_result(0, 3, 0), alone=True)


@pytest.mark.parametrize("alone", [True, False])
def test_answers_that_ran_to_their_end_are_undecided(*, alone: bool) -> None:
    why = why_undecided(cancel_result(0, 4, 0, tokens_before=11000), alone=alone)
    assert why is not None
    assert "15100 of 16000 tokens were generated before the requests were seen to end" in why
