"""Clients that left: what was in flight, and whether it says anything."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.isolation.cancel import CancelResult

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
        "tokens_before": 400, "tokens_after": 499, "seconds": 2.5,
    }  # fmt: skip
