"""Passes requests on until the end. A second process sends the copies and judges."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts
from pytest_vllm_gates.shadow.endings import on_signals
from pytest_vllm_gates.shadow.proxy.application import StableProxy
from pytest_vllm_gates.shadow.proxy.channel import (
    Ending,
    Failed,
    LastDocument,
    Ready,
    frame,
    receive,
)
from pytest_vllm_gates.shadow.proxy.lag import LoopLag
from pytest_vllm_gates.shadow.proxy.outbox import CopyOutbox
from pytest_vllm_gates.shadow.sessions import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web

    from pytest_vllm_gates.shadow.plan import Shadow

PROGRAM = "pytest_vllm_gates.shadow.mirroring.program"
STARTING_S = 120.0
"""The time limit for the other process' imports."""
ENDING_S = 60.0
"""The time limit for its end, in addition to the time for copies and the webhook."""
PARTS = 4
"""The share of the memory for data that is kept here; half as much is for data that the other
process has not taken yet; the other process has the rest."""
ENDED = "the process that sends copies to the canary and judges them has ended"


async def pass_on(shadow: Shadow, ready: Callable[[str, str], None]) -> dict[str, Any]:
    """Pass requests on until the end; return the shadow's document. See `serve.run`."""
    ending = asyncio.Event()
    on_signals(ending)
    counts, room = MirrorCounts(), CopyRoom(shadow.limits.all_bytes // PARTS)
    lag, runners = LoopLag(), list["web.AppRunner"]()
    async with mirror_process(shadow) as mirror:
        control_url = await mirror.ready()
        outbox = CopyOutbox(mirror.transport, room.limit // 2, room, counts, lag)
        lag.start()
        try:
            proxy = StableProxy(
                shadow.stable or "", outbox, shadow.share, shadow.settings, shadow.limits, room,
                counts, shadow.seed,
            )  # fmt: skip
            proxy_url = await listen(proxy.application(), shadow.listen, runners, shadow.drain_s)
            ready(proxy_url, control_url)
            # A garbage collection over all imported objects takes as long as many answers.
            gc.freeze()
            await mirror.until_it_ends(ending)
            # Clients come first: their requests are answered in full, as long as there is time.
            outbox.closing = True
            until_s = time.monotonic() + shadow.drain_s
            await runners.pop().cleanup()
            outbox.end(max(0.0, until_s - time.monotonic()))
            return await mirror.document(shadow.drain_s + ENDING_S)
        finally:
            lag.stop()
            for runner in runners:
                await runner.cleanup()


class MirrorProcess:
    """The other process, while it runs."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self.transport = stdin.transport
        """The writer of its messages."""
        loop = asyncio.get_running_loop()
        self._first: asyncio.Future[Ready | Failed | None] = loop.create_future()
        self._last: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        self._wants_to_end = False
        self._said = asyncio.Event()
        """Set when it wants to end, or has ended."""
        self._reading = loop.create_task(self._read(stdout))

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                match await receive(stdout):
                    case Ready() | Failed() as first:
                        self._first.set_result(first)
                    case Ending():
                        self._wants_to_end = True
                        self._said.set()
                    case LastDocument(document):
                        self._last.set_result(document)
        for future in (self._first, self._last):
            if not future.done():
                future.set_result(None)
        self._said.set()

    async def ready(self) -> str:
        """Wait until it is ready; return the URL of its port. Raises `UserError` if it fails."""
        try:
            first = await asyncio.wait_for(self._first, STARTING_S)
        except TimeoutError as error:
            raise UserError(
                f"the process that judges was not ready in {STARTING_S:g} s: is this machine "
                "very busy?"
            ) from error
        match first:
            case Ready(control_url):
                return control_url
            case Failed(says):
                raise UserError(says)
        raise UserError(f"{ENDED} before it was ready; see what it printed above")

    async def until_it_ends(self, ending: asyncio.Event) -> None:
        """Wait until it reports that it is done, or until `ending` is set."""
        end, said = (asyncio.ensure_future(each.wait()) for each in (ending, self._said))
        await asyncio.wait((end, said), return_when=asyncio.FIRST_COMPLETED)
        if self._said.is_set() and not self._wants_to_end:
            print(
                f"{ENDED}: requests are passed on, but there will not be a verdict. See what it "
                "printed above; end this with SIGTERM and start it again",
                file=sys.stderr,
            )
            await end
        for waiting in (end, said):
            waiting.cancel()

    async def document(self, within_s: float) -> dict[str, Any]:
        """Return its last document; raises `UserError` if there is none."""
        document = None
        with contextlib.suppress(TimeoutError):
            document = await asyncio.wait_for(self._last, within_s)
        if document is None:
            raise UserError(
                f"{ENDED}, so no pair counts: read what it printed above, then run the same "
                "command again"
            )
        return document


@contextlib.asynccontextmanager
async def mirror_process(shadow: Shadow) -> AsyncIterator[MirrorProcess]:
    """Run the other process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", PROGRAM,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        # Ctrl-C is meant for the proxy, which drains first.
        start_new_session=True,
    )  # fmt: skip
    try:
        if process.stdin is None or process.stdout is None:
            raise OSError("the process has no pipes")
        process.stdin.write(frame(shadow))
        yield MirrorProcess(process.stdin, process.stdout)
        # It ends by itself after it has written its last files.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), ENDING_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
