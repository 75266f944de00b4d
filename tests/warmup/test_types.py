"""Boots are compared by their order alone, and a health that comes too soon is seen."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.warmup.types import (
    COLD,
    WARM,
    Spread,
    WarmupBoot,
    WarmupTimes,
    changes,
    phase_spreads,
)


def boot(
    total_s: float, caches: str = COLD, first_chat_s: float = 1.0, next_chat_s: float = 0.5
) -> WarmupBoot:
    phases = {"imports": total_s - 2.0, "first answer": 2.0}
    return WarmupBoot(caches, phases, total_s - 2.0, total_s, first_chat_s, next_chat_s)


def times(*boots: WarmupBoot, machine: str = "a, 2 cores") -> WarmupTimes:
    created = "2026-11-26T10:00:00+00:00"
    return WarmupTimes("qwen3.5", "miniature", "cpu", "0.32.0", machine, created, 0.1, boots)


def test_five_slower_boots_are_slower_and_two_leave_it_open() -> None:
    before = times(*(boot(30.0 + number) for number in range(5)))
    (change,) = changes(times(*(boot(40.0 + number) for number in range(5))), before)
    assert change.is_slower and not change.is_open
    assert round(1 / change.chance) == 252
    (change,) = changes(times(boot(40.0), boot(41.0)), before)
    assert change.apart and change.is_open and not change.is_slower


@pytest.mark.parametrize(
    "totals",
    [
        (40.0, 41.0, 42.0, 43.0, 33.0),  # one of them is not slower than the slowest recorded
        (34.1, 34.2, 34.3, 34.4, 34.5),  # 5 % at most
    ],
)
def test_times_within_the_spread_are_not_slower(totals: tuple[float, ...]) -> None:
    before = times(*(boot(33.6 + 0.1 * number) for number in range(5)))
    (change,) = changes(times(*map(boot, totals)), before)
    assert not change.is_slower


def test_cold_and_warm_boots_are_compared_for_themselves() -> None:
    before = times(boot(30.0), boot(20.0, WARM))
    now = times(boot(31.0), boot(21.0, WARM))
    assert [(each.caches, each.recorded.median) for each in changes(now, before)] == [
        (COLD, 30.0), (WARM, 20.0)
    ]  # fmt: skip
    assert changes(times(boot(31.0)), times(boot(21.0, WARM))) == []


@pytest.mark.parametrize(
    ("first_chat_s", "next_chat_s", "early"),
    [(1.0, 0.2, False), (20.0, 0.2, True), (20.0, 12.0, False), (5.1, 0.2, False)],
)
def test_a_first_answer_long_after_health_is_seen(
    first_chat_s: float, next_chat_s: float, early: bool
) -> None:
    assert boot(60.0, COLD, first_chat_s, next_chat_s).is_early == early


def test_the_spread_is_of_all_boots() -> None:
    spreads = phase_spreads([boot(30.0), boot(34.0), boot(31.0)])
    assert spreads["total"] == Spread(31.0, 30.0, 34.0)
    assert spreads["imports"] == Spread(29.0, 28.0, 32.0)
    assert phase_spreads([]) == {}
