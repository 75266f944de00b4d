"""The requests in flight after clients left are measured, and judged if possible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.isolation.cancel import FREED_S, OTHERS_S, CancelResult, LeaveWatch
from pytest_vllm_gates.server.metrics import Load

LEFT = CancelResult(
    streamed=True, clients=4, asked_tokens=1000, before=1, during=5, after=1, tokens_before=400,
    tokens_after=499, seconds=2.5,
)  # fmt: skip


def test_all_arrived_and_all_were_freed() -> None:
    assert LEFT.arrived and LEFT.freed
    assert not replace(LEFT, during=4).arrived
    assert not replace(LEFT, after=2).freed


def test_nearly_complete_answers_may_have_ended() -> None:
    assert not LEFT.ran_out
    assert replace(LEFT, tokens_after=500).ran_out


def test_every_field_is_evidence() -> None:
    assert LEFT.as_evidence() == {
        "streamed": True, "clients": 4, "asked_tokens": 1000, "before": 1, "during": 5, "after": 1,
        "tokens_before": 400, "tokens_after": 499, "seconds": 2.5, "others": False,
    }  # fmt: skip


MOST_TOKENS = 80_000


def load(at: float, in_flight: int, *, read: int = 40, generated: int = 400) -> Load:
    return Load(at, in_flight, 0, generated=generated, read=read, preempted=0, kv_usage=0.0)


def watched(*looks: Load, before: int = 0, during: int = 4) -> LeaveWatch:
    watch = LeaveWatch(before, load(0.0, during), during)
    for look in looks:
        watch.look(look)
    return watch


def test_watch_ends_when_as_few_are_in_flight_as_before() -> None:
    watch = watched(load(0.1, 4), load(0.2, 0))
    assert watch.over(MOST_TOKENS)
    assert (watch.after, watch.others, watch.seconds) == (0, False, 0.2)


def test_watch_of_requests_that_go_on_ends_with_their_tokens_or_in_time() -> None:
    going_on = [load(number / 2, 4, generated=400 + number) for number in range(1, 9)]
    watch = watched(*going_on)
    assert not watch.over(MOST_TOKENS)
    assert not watch.others
    watch.look(load(5.0, 4, generated=400 + MOST_TOKENS // 4 + 1))
    assert watch.over(MOST_TOKENS)
    assert watched(load(FREED_S, 4)).over(MOST_TOKENS)


@pytest.mark.parametrize(
    "watch",
    [
        watched(load(0.1, 2), load(0.2, 5)),
        watched(load(0.1, 4), load(1.1, 4), load(1.2, 4, read=90)),
        watched(load(0.1, 7), before=3, during=7),
        watched(load(0.1, 5), during=5),
    ],
    ids=["more come", "prompts are read", "some were there", "more than four"],
)
def test_requests_of_others_are_noticed(watch: LeaveWatch) -> None:
    assert watch.others


def test_prompts_of_those_who_left_may_still_be_read() -> None:
    assert not watched(load(0.1, 4), load(0.5, 4, read=90), load(1.5, 4, read=90)).others


def test_tokens_of_other_clients_do_not_end_the_watch() -> None:
    """An early end took their tokens for those of the clients that left."""
    busy = [load(0.1, 2), load(0.2, 5, generated=MOST_TOKENS)]
    assert not watched(*busy).over(MOST_TOKENS)
    assert watched(*busy, load(OTHERS_S, 5)).over(MOST_TOKENS)
    assert watched(*busy, load(2.0, 0)).over(MOST_TOKENS)
