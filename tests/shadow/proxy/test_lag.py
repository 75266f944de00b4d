"""The loop is late until it is clearly in time again."""

from __future__ import annotations

import asyncio
import time

from pytest_vllm_gates.shadow.proxy import lag
from pytest_vllm_gates.shadow.proxy.lag import LoopLag


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
        for _ in range(50):
            await asyncio.sleep(lag.LOOK_S / 2)
            time.sleep(5 * lag.LATE_S)  # noqa: ASYNC251 - that is what it is to see
            await asyncio.sleep(0)
            if looked.behind:
                break
        looked.stop()
        return looked.behind

    assert asyncio.run(keep_busy())
