"""Copies are left out while the loop is late, until it is clearly in time again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pytest_vllm_gates.shadow import lag
from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, MirrorLimits
from pytest_vllm_gates.shadow.lag import LoopLag
from pytest_vllm_gates.shadow.mirror import BUSY, Mirror


def test_the_loop_is_behind_until_it_is_clearly_in_time() -> None:
    looked = LoopLag()
    between = (lag.LATE_S + lag.IN_TIME_S) / 2
    said = []
    for late_s in (0.0, between, 2 * lag.LATE_S, between, 0.0, between):
        looked.late(late_s)
        said.append(looked.behind)
    assert said == [False, False, True, True, False, False]


def test_a_loop_that_is_kept_busy_is_seen() -> None:
    async def keep_busy() -> bool:
        looked = LoopLag()
        looked.start()
        await asyncio.sleep(2 * lag.LOOK_S)
        time.sleep(5 * lag.LATE_S)  # noqa: ASYNC251 - that is what it is to see
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        behind = looked.behind
        looked.stop()
        return behind

    assert asyncio.run(keep_busy())


def test_no_copy_is_taken_while_the_loop_is_behind() -> None:
    async def never(*_: Any) -> None:
        pytest.fail("nothing is to be judged")

    looked = LoopLag()
    looked.late(2 * lag.LATE_S)
    mirror = Mirror(
        "http://127.0.0.1:9", None, MirrorLimits(), CopyRoom(0), MirrorCounts(), never, looked
    )
    assert mirror.offer(None) == BUSY  # type: ignore[arg-type]
