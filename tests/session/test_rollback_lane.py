"""The choice of the lane to go back to."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.session.rollback import RollbackTarget, back
from pytest_vllm_gates.verdict.verdict import Promotion


def run(promotion: str, lane: str, created: str) -> dict[str, str]:
    return {"promotion": promotion, "lane": lane, "created": created}


HISTORY = [
    run("PROMOTE", "older", "2026-01-01"),
    run("PROMOTE", "stable", "2026-02-01"),
    run("REJECT", "canary", "2026-03-01"),
    run("HOLD", "canary", "2026-03-02"),
]


def test_rollback_to_the_compared_lane() -> None:
    assert back(Promotion.REJECT, "canary", "stable", HISTORY[:1]) == RollbackTarget("stable")


def test_rollback_to_the_last_promoted_lane() -> None:
    assert back(Promotion.REJECT, "canary", None, HISTORY) == RollbackTarget("stable", "2026-02-01")
    assert back(Promotion.REJECT, "stable", None, HISTORY) == RollbackTarget("stable", "2026-02-01")


def test_lane_compared_with_itself_is_not_the_target() -> None:
    assert back(Promotion.REJECT, "canary", "canary", HISTORY) == RollbackTarget(
        "stable", "2026-02-01"
    )
    assert back(Promotion.REJECT, "canary", "canary") is None


def test_no_rollback_without_any_promotion() -> None:
    assert back(Promotion.REJECT, "canary", None, HISTORY[2:]) is None
    assert back(Promotion.REJECT, "canary", None) is None


@pytest.mark.parametrize("promotion", [Promotion.PROMOTE, Promotion.HOLD])
def test_no_rollback_without_a_reject(promotion: Promotion) -> None:
    assert back(promotion, "canary", "stable", HISTORY) is None
