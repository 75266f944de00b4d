"""Has pairs judged in a separate process, with a time limit for each."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

from pytest_vllm_gates.shadow.pair_lines import judgement_of, pair_line
from pytest_vllm_gates.shadow.tally import PairJudgement

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent

JUDGING_S = 20.0
"""The time limit of one pair; a foreign schema may have a pattern that never ends."""
STARTING_S = 120.0
"""The first pair waits for the imports."""
ANSWER_BYTES = 4 * 2**20
PROGRAM = "pytest_vllm_gates.shadow.judge_program"


class JudgeProcess:
    """Judges one pair after the other; restarts its process if it ended."""

    def __init__(self, family: str | None, project: Path) -> None:
        self._arguments = (family or "", str(project))
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.restarts = 0

    async def judge(self, stable: Sent, canary: Sent) -> PairJudgement:
        """Judge one pair; a pair that takes too long is left out."""
        async with self._turn:
            fresh = self._process is None
            process = self._process or await self._start()
            try:
                limit = STARTING_S if fresh else JUDGING_S
                line = await asyncio.wait_for(_answer(process, pair_line(stable, canary)), limit)
                return judgement_of(line)
            except TimeoutError:
                await self._end()
                return PairJudgement(left_out=f"it was not judged in {JUDGING_S:g} s")
            except (OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
                await self._end()
                return PairJudgement(left_out="the process that judges has ended")
            except asyncio.CancelledError:
                # A late answer would be taken for the next pair's.
                await self._end()
                raise

    async def close(self) -> None:
        """End the process."""
        await self._end()

    async def _start(self) -> asyncio.subprocess.Process:
        self.restarts += 1
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROGRAM, *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=ANSWER_BYTES,
            # Ctrl-C is meant for the proxy, which drains first.
            start_new_session=True,
        )  # fmt: skip
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _answer(process: asyncio.subprocess.Process, line: bytes) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise OSError("the process has no pipes")
    process.stdin.write(line)
    await process.stdin.drain()
    return await process.stdout.readuntil(b"\n")
