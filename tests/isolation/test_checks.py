"""Whether clients that left freed their slots, or whether nobody can tell."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.isolation.cancel import CancelResult
from pytest_vllm_gates.isolation.checks import fault, why_undecided


def departure(before: int, during: int, after: int, tokens_before: int = 200) -> CancelResult:
    return CancelResult(
        streamed=True, clients=4, asked_tokens=16000, before=before, during=during, after=after,
        tokens_before=tokens_before, tokens_after=4100, seconds=6.5,
    )  # fmt: skip


def test_slots_that_are_free_again_are_right() -> None:
    left = departure(0, 4, 0)
    assert why_undecided(left, alone=False) is None
    assert fault(left) is None


def test_requests_that_go_on_are_counted() -> None:
    left = departure(0, 4, 4)
    assert why_undecided(left, alone=False) is None
    told = fault(left)
    assert told is not None
    assert "4 clients left, and 4 of their requests still run 6.5 s later: 4100 tokens" in told


def test_one_that_goes_on_is_a_fault_where_nobody_else_is() -> None:
    left = departure(0, 4, 1)
    assert why_undecided(left, alone=True) is None
    assert "1 of their requests" in str(fault(left))


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (departure(0, 4, 1), "they may be other people's"),
        (departure(2, 6, 2), "others use this server: 2 requests were in flight"),
        (departure(2, 6, 6), "others use this server"),
        (departure(0, 2, 0), "of 4 requests no more than 2 were seen in flight"),
    ],
)
def test_what_may_be_others_is_not_judged(left: CancelResult, says: str) -> None:
    why = why_undecided(left, alone=False)
    assert why is not None
    assert says in why


def test_an_empty_server_is_judged_whoever_was_there_before() -> None:
    assert why_undecided(departure(2, 6, 0), alone=False) is None


def test_requests_that_never_arrived_are_not_judged_even_alone() -> None:
    assert why_undecided(departure(0, 3, 0), alone=True)


@pytest.mark.parametrize("alone", [True, False])
def test_answers_that_ran_to_their_end_tell_nothing(*, alone: bool) -> None:
    why = why_undecided(departure(0, 4, 0, tokens_before=11000), alone=alone)
    assert why is not None
    assert "15100 of 16000 tokens were generated before anybody saw the requests gone" in why
