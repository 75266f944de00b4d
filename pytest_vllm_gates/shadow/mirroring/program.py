"""The process beside the proxy: sends its copies, judges pairs, answers controllers.

The first message on stdin is the `Shadow`; channel messages follow. Its own messages go to stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.shadow.copies import KeptAnswer, RequestCopy
from pytest_vllm_gates.shadow.mirroring.run import Mirroring
from pytest_vllm_gates.shadow.proxy.channel import (
    CopyBegun,
    Ending,
    Failed,
    LastDocument,
    Passed,
    Ready,
    StableAnswered,
    frame,
    receive,
)
from pytest_vllm_gates.shadow.serve import fast_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.shadow.plan import Shadow

NICENESS = 5
"""Clients come first: the proxy gets the processor before this process does. The difference is
small, because this process measures the canary's times."""
SHARE = 3 / 8
"""The share of the shadow's memory for this process; the proxy has the rest."""
MOST_BUFFERED = 2**20
"""Bytes of messages that are read ahead."""


class Inbox:
    """Turns the proxy's messages into copies, and offers them to the mirror."""

    def __init__(self, mirroring: Mirroring, side_bytes: int) -> None:
        self._mirroring = mirroring
        self._side_bytes = side_bytes
        self._copies: dict[int, RequestCopy] = {}
        self.ended = asyncio.Event()
        """Set when the shadow is to end: clients get no more answers."""
        self.left_s = 0.0
        """How long ending may take."""

    async def take(self, reader: asyncio.StreamReader) -> None:
        """Take messages until the proxy sends no more."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                match await receive(reader):
                    case CopyBegun() as begun:
                        self._begin(begun)
                    case StableAnswered() as answered:
                        self._answer(answered)
                    case Passed() as passed:
                        counts = self._mirroring.counts
                        counts.passed += passed.passed
                        counts.failed += passed.failed
                        counts.not_mirrored.update(passed.not_mirrored)
                    case Ending(left_s):
                        self.left_s = left_s
                        self.ended.set()
        self.ended.set()

    def _begin(self, begun: CopyBegun) -> None:
        room, reason = self._mirroring.room, "no memory is left for copies"
        if room.take(len(begun.body)):
            stable = KeptAnswer(room, self._side_bytes)
            copy = RequestCopy(begun.method, begun.path, begun.headers, begun.body, stable)
            reason = self._mirroring.mirror.offer(copy)
            if not reason:
                self._copies[begun.number] = copy
                return
            room.give_back(len(begun.body))
        self._mirroring.counts.not_mirrored[reason] += 1

    def _answer(self, answered: StableAnswered) -> None:
        copy = self._copies.pop(answered.number, None)
        if copy is None:
            return
        if answered.hung_up:
            copy.settle(None)
            return
        for at_s, piece in answered.pieces:
            copy.stable.add(at_s, piece)
        copy.stable.cut_bytes += answered.cut_bytes
        copy.settle(copy.sent(copy.stable, answered.status, answered.headers, answered.error))


async def _run(send: Callable[[object], None]) -> None:
    reader = asyncio.StreamReader(MOST_BUFFERED)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    shadow: Shadow = await receive(reader)
    async with Mirroring(shadow, int(SHARE * shadow.limits.all_bytes)) as mirroring:
        try:
            url = await mirroring.start()
        except UserError as error:
            send(Failed(str(error)))
            return
        send(Ready(url))
        inbox = Inbox(mirroring, shadow.limits.side_bytes)
        taking = asyncio.create_task(inbox.take(reader))
        await mirroring.until_the_end(inbox.ended)
        send(Ending())
        await inbox.ended.wait()  # answers that clients still get are judged as well
        send(LastDocument(await mirroring.finish(inbox.left_s)))
        taking.cancel()


def main() -> int:
    """Run until the proxy ends, or has its document."""
    os.nice(NICENESS)
    # Libraries may print to stdout, which is for messages alone.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(message: Any) -> None:
        data = frame(message)
        while data:
            data = data[channel.write(data) or 0 :]

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        try:
            runner.run(_run(send))
        except (BrokenPipeError, asyncio.IncompleteReadError):  # the proxy has gone
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
