"""Sends copies of requests to the canary, and joins both sides' answers to pairs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pytest_vllm_gates.shadow.copies import KeptAnswer
from pytest_vllm_gates.shadow.headers import passed_on
from pytest_vllm_gates.shadow.mirroring.pace import ReadPace
from pytest_vllm_gates.shadow.sessions import AnswerClock, plain_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, MirrorLimits, RequestCopy

NO_PAIR = "the client hung up"


class Mirror:
    """Sends the stable server's requests to the canary. No client waits for it."""

    def __init__(  # noqa: PLR0917
        self,
        root: str,
        key: str | None,
        limits: MirrorLimits,
        room: CopyRoom,
        counts: MirrorCounts,
        judged: Callable[[Sent, Sent], Awaitable[None]],
    ) -> None:
        """`root` is the canary's URL without `/v1`; `judged` gets each pair, stable first."""
        self._root = root
        self._key = key
        self._limits = limits
        self._room = room
        self._counts = counts
        self._judged = judged
        self._places = asyncio.Semaphore(limits.in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._pace = ReadPace()
        self.closing = False

    def offer(self, copy: RequestCopy) -> str:
        """Accept a copy; return why it is refused, '' if it is accepted. Never waits."""
        if len(self._tasks) >= self._limits.in_flight + self._limits.waiting:
            return "too many copies wait for the canary or for their judgement"
        task = asyncio.get_running_loop().create_task(self._run(copy))
        self._tasks.add(task)
        copy.pair = task
        task.add_done_callback(self._tasks.discard)
        # If the client hangs up, the copy ends as well.
        copy.answered.add_done_callback(
            lambda future: None if future.result() is not None else task.cancel()
        )
        return ""

    @staticmethod
    async def done(copy: RequestCopy) -> None:
        """Wait until an accepted copy has become a pair or has been abandoned."""
        if copy.pair:
            await asyncio.wait([copy.pair])

    async def drain(self, seconds: float) -> None:
        """Accept no more copies; wait so long for copies in progress, then abandon them."""
        self.closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = [*self._tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self._session:
            await self._session.close()

    async def _run(self, copy: RequestCopy) -> None:
        kept = KeptAnswer(self._room, self._limits.side_bytes)
        try:
            async with self._places:
                canary = await self._ask(copy, kept)
            stable = await copy.answered
            if stable is not None:
                await self._judged(stable, canary)
        except asyncio.CancelledError:
            gone = copy.answered.done() and copy.answered.result() is None
            self._counts.not_mirrored[NO_PAIR if gone else "the shadow ended"] += 1
        except Exception as error:  # noqa: BLE001 - one pair ends no shadow
            self._counts.not_mirrored[f"it failed here: {type(error).__name__}"] += 1
        finally:
            kept.forget()
            copy.stable.forget()
            self._room.give_back(len(copy.body))

    async def _ask(self, copy: RequestCopy, kept: KeptAnswer) -> Sent:
        """Return the canary's side; every failure is recorded as its error."""
        self._counts.mirrored += 1
        self._session = self._session or plain_session(
            force_close=True, total_s=self._limits.canary_s
        )
        headers = CIMultiDict(copy.headers)
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        clock = AnswerClock()
        status, answer_headers, error = None, [], ""
        try:
            async with self._session.request(
                copy.method,
                URL(self._root + copy.path, encoded=True),
                headers=headers,
                data=copy.body,
                allow_redirects=False,
                trace_request_ctx=clock,
            ) as response:
                status = response.status
                answer_headers = passed_on(response.raw_headers, frozenset())
                async for piece in response.content.iter_any():
                    if not kept.add(clock.seconds, piece):
                        error = f"the answer has more than {self._limits.side_bytes} bytes"
                        break
                    if wait_s := self._pace.wait_s(kept.size, len(piece)):
                        await asyncio.sleep(wait_s)
        except TimeoutError:
            error = f"no whole answer in {self._limits.canary_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as raised:
            error = f"{type(raised).__name__}: {raised}"
        return copy.sent(kept, status, answer_headers, error)
