"""Copies leave the proxy together, in order, and none if clients would have to wait for them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

from pytest_vllm_gates.shadow.copies import CopyRoom, KeptAnswer, MirrorCounts, RequestCopy
from pytest_vllm_gates.shadow.proxy import channel, lag, outbox
from pytest_vllm_gates.shadow.proxy.channel import CopyBegun, Ending, Passed, StableAnswered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROOM = 10_000
BODY = b"{}" * 50
HEADERS = (("Content-Type", "application/json"),)


class Pipe:
    """An outbox, and what comes out of it."""

    def __init__(self, most_unsent: int) -> None:
        self.most_unsent = most_unsent
        self.room = CopyRoom(ROOM)
        self.counts = MirrorCounts()
        self.lag = lag.LoopLag()
        self.reader = asyncio.StreamReader()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        ours, theirs = os.pipe()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(ours, "rb")
        )
        transport, _ = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(theirs, "wb")
        )
        self.transport = transport
        self.outbox = outbox.CopyOutbox(
            transport, self.most_unsent, self.room, self.counts, self.lag
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.outbox.end(1.5)
        self.transport.close()

    def copy(self) -> RequestCopy:
        """Return a copy whose body has its room."""
        assert self.room.take(len(BODY))
        return RequestCopy("POST", "/v1/completions", HEADERS, BODY, KeptAnswer(self.room, ROOM))

    async def next(self) -> Any:
        """Return the next message."""
        return await asyncio.wait_for(channel.receive(self.reader), 10)


def piped(use: Callable[[Pipe], Awaitable[None]], most_unsent: int = ROOM) -> None:
    """Give an outbox to `use`."""

    async def run() -> None:
        async with Pipe(most_unsent) as pipe:
            await use(pipe)

    asyncio.run(run())


def test_a_copy_and_its_answer_come_out_and_give_their_memory_back() -> None:
    async def use(pipe: Pipe) -> None:
        copy = pipe.copy()
        assert not pipe.outbox.offer(copy)
        copy.stable.add(0.25, b"piece")
        copy.settle(copy.sent(copy.stable, 200, (("X-Twice", "one"),)))
        assert await pipe.next() == CopyBegun(0, "POST", "/v1/completions", HEADERS, BODY)
        assert await pipe.next() == StableAnswered(
            0, 200, (("X-Twice", "one"),), ((0.25, b"piece"),)
        )
        assert pipe.room.used == 0

    piped(use)


def test_a_client_that_hangs_up_is_reported() -> None:
    async def use(pipe: Pipe) -> None:
        copy = pipe.copy()
        pipe.outbox.offer(copy)
        copy.settle(None)
        await pipe.next()
        assert await pipe.next() == StableAnswered(0, hung_up=True)
        assert pipe.room.used == 0

    piped(use)


def test_counts_come_as_what_is_new() -> None:
    async def use(pipe: Pipe) -> None:
        pipe.counts.passed, pipe.counts.failed = 3, 1
        pipe.counts.not_mirrored["not a generation"] += 2
        assert await pipe.next() == Passed(3, 1, Counter({"not a generation": 2}))
        pipe.counts.passed = 5
        assert await pipe.next() == Passed(2, 0, Counter())

    piped(use)


def test_the_end_comes_last() -> None:
    async def use(pipe: Pipe) -> None:
        pipe.outbox.offer(pipe.copy())
        pipe.outbox.end(7.5)
        assert isinstance(await pipe.next(), CopyBegun)
        assert await pipe.next() == Ending(7.5)

    piped(use)


def test_no_copy_is_taken_while_the_loop_is_behind() -> None:
    async def use(pipe: Pipe) -> None:
        pipe.lag.late(2 * lag.LATE_S)
        assert pipe.outbox.offer(pipe.copy()) == outbox.BUSY

    piped(use)


def test_no_copy_is_taken_before_those_that_wait_are_read() -> None:
    async def use(pipe: Pipe) -> None:
        said = [pipe.outbox.offer(pipe.copy()) for _ in range(4)]
        assert said == ["", "", outbox.BUSY, outbox.BUSY]
        await pipe.next()
        assert not pipe.outbox.offer(pipe.copy())

    piped(use, most_unsent=3 * len(BODY))


def test_no_copy_is_taken_without_the_other_process() -> None:
    async def use(pipe: Pipe) -> None:
        pipe.transport.close()
        assert "has ended" in pipe.outbox.offer(pipe.copy())

    piped(use)


@pytest.mark.parametrize("cut", [1, channel.LENGTH.size, channel.LENGTH.size + 3])
def test_a_message_that_breaks_off_is_dropped(cut: int) -> None:
    async def received() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(channel.frame(Ending())[:cut])
        reader.feed_eof()
        return await channel.receive(reader)

    with pytest.raises(asyncio.IncompleteReadError):
        asyncio.run(received())
