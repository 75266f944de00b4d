"""Hands copies of requests to the process that judges. No client waits for it."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from pytest_vllm_gates.shadow.proxy.channel import CopyBegun, Ending, Passed, StableAnswered, frame

if TYPE_CHECKING:
    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, RequestCopy
    from pytest_vllm_gates.shadow.proxy.lag import LoopLag

BUSY = "clients would have waited for it"
"""Why a request has no copy: the shadow is fully loaded."""
TOGETHER_S = 0.003
"""How long messages wait to be sent together: each write wakes the other process, and answers
come first."""
COUNTED_S = 0.25
"""How often the counts are sent when no copy is."""


class CopyOutbox:
    """The proxy's end of the channel."""

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        most_unsent: int,
        room: CopyRoom,
        counts: MirrorCounts,
        lag: LoopLag,
    ) -> None:
        """While more than `most_unsent` bytes wait for the other process, no copy is accepted."""
        self._transport = transport
        self._most_unsent = most_unsent
        self._room = room
        self._counts = counts
        self._lag = lag
        self._numbers = itertools.count()
        self._frames: list[bytes] = []
        self._unsent = 0
        self._flushing: asyncio.TimerHandle | None = None
        self._told = Passed(0, 0, Counter())
        self._counting = asyncio.get_running_loop().create_task(self._count())
        self.closing = False

    def offer(self, copy: RequestCopy) -> str:
        """Accept a copy; return why it is refused, '' if it is accepted. Never waits."""
        if self._transport.is_closing():
            return "the process that judges has ended"
        if self._lag.behind or self._is_full:
            return BUSY
        number = next(self._numbers)
        self._put(CopyBegun(number, copy.method, copy.path, copy.headers, copy.body))
        copy.answered.add_done_callback(functools.partial(self._settled, number, copy))
        return ""

    @property
    def _is_full(self) -> bool:
        return self._unsent + self._transport.get_write_buffer_size() > self._most_unsent

    def _settled(
        self, number: int, copy: RequestCopy, answered: asyncio.Future[Sent | None]
    ) -> None:
        sent = None if answered.cancelled() else answered.result()
        if sent is None:
            self._put(StableAnswered(number, hung_up=True))
        else:
            headers = tuple(sent.response_headers.items())
            self._put(
                StableAnswered(
                    number, sent.status, headers, sent.pieces, sent.error, sent.cut_bytes
                )
            )
        copy.stable.forget()
        self._room.give_back(len(copy.body))

    def _put(self, message: object) -> None:
        data = frame(message)
        self._frames.append(data)
        self._unsent += len(data)
        self._flushing = self._flushing or asyncio.get_running_loop().call_later(
            TOGETHER_S, self._flush
        )

    def _flush(self) -> None:
        self._flushing = None
        now = self._counts
        told = Passed(now.passed, now.failed, Counter(now.not_mirrored))
        if told != self._told:
            more = told.not_mirrored - self._told.not_mirrored
            passed, failed = told.passed - self._told.passed, told.failed - self._told.failed
            self._frames.append(frame(Passed(passed, failed, more)))
            self._told = told
        frames, self._frames, self._unsent = self._frames, [], 0
        if frames and not self._transport.is_closing():
            self._transport.write(b"".join(frames))

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNTED_S)
            self._flush()

    def end(self, left_s: float) -> None:
        """Announce that no more copies come; the other process then has so long to end."""
        self._counting.cancel()
        self._put(Ending(left_s))
        self._flush()
