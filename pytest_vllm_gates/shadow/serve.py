"""One shadow from start to end: the proxy and its second port, or a trace, until it is to end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.shadow.control import control_application
from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, MirrorLimits
from pytest_vllm_gates.shadow.decide import HOLD, Question
from pytest_vllm_gates.shadow.judging import JudgeProcess
from pytest_vllm_gates.shadow.lag import LoopLag
from pytest_vllm_gates.shadow.mirror import Mirror
from pytest_vllm_gates.shadow.proxy import StableProxy
from pytest_vllm_gates.shadow.recorded import RecordedTrace
from pytest_vllm_gates.shadow.sessions import LINE_BYTES, plain_session
from pytest_vllm_gates.shadow.tokens.partings import PartingTokens
from pytest_vllm_gates.shadow.watch import CanaryWatch
from pytest_vllm_gates.shadow.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.failing import FailingPairs
    from pytest_vllm_gates.shadow.settings import ShadowSettings
    from pytest_vllm_gates.shadow.tally import PairJudgement

LOOK_S = 1.0
"""How often the answer is looked at where no failure makes it be."""
TURN_S = 15.0
"""The part of `drain_s` that the webhook has after the copies."""


@dataclass(frozen=True)
class Shadow:
    """What one shadow is to do."""

    stable: str | None
    """URL without `/v1`; None with a trace whose recorded answers are compared."""
    canary: str
    settings: ShadowSettings
    project: Path
    stable_key: str | None = field(default=None, repr=False)
    """Used for a trace alone: clients bring their own."""
    canary_key: str | None = field(default=None, repr=False)
    listen: tuple[str, int] = ("127.0.0.1", 0)
    control: tuple[str, int] = ("127.0.0.1", 0)
    share: float = 1.0
    seed: int | None = None
    family: str | None = None
    question: Question = field(default_factory=Question)
    limits: MirrorLimits = field(default_factory=MirrorLimits)
    webhook: str | None = None
    pairs: int | None = None
    minutes: float | None = None
    until_verdict: bool = False
    drain_s: float = 30.0
    trace: Sequence[Sent] | None = None
    failing: FailingPairs | None = None
    with_page: bool = False
    """Whether the second port shows the document live."""
    redactor: Redactor = field(default_factory=Redactor)


async def run(shadow: Shadow, ready: Callable[[str, str], None]) -> dict[str, Any]:
    """Run a shadow until its end; return its document.

    `ready` gets the URLs of the proxy and of the second port once both answer; the first is empty
    with a trace. Raises `UserError` where a port cannot be had.
    """
    counts, room = MirrorCounts(), CopyRoom(shadow.limits.all_bytes)
    judge = JudgeProcess(shadow.family, shadow.project)
    tokens = PartingTokens(
        shadow.canary, shadow.canary_key, functools.partial(plain_session, force_close=True)
    )
    watch = CanaryWatch(
        shadow.settings, shadow.question, counts, judge,
        {"stable": shadow.stable or "recorded", "canary": shadow.canary},
        shadow.redactor.failure,
        functools.partial(_keep, shadow.failing) if shadow.failing else None,
        tokens,
    )  # fmt: skip
    lag = LoopLag()
    mirror = Mirror(shadow.canary, shadow.canary_key, shadow.limits, room, counts, watch.take, lag)
    hook = Webhook(shadow.webhook) if shadow.webhook else None
    ending = asyncio.Event()
    _on_signals(ending)
    runners: list[web.AppRunner] = []
    try:
        control_url = await _start(
            control_application(watch, with_page=shadow.with_page), shadow.control, runners, 0.0
        )
        proxy_url = ""
        trace = None
        if shadow.trace is None:
            lag.start()  # a trace has no clients who wait
            proxy = StableProxy(
                shadow.stable or "", mirror, shadow.share, shadow.settings, shadow.limits, room,
                counts, shadow.seed,
            )  # fmt: skip
            proxy_url = await _start(proxy.application(), shadow.listen, runners, shadow.drain_s)
        else:
            trace = asyncio.create_task(
                RecordedTrace(
                    shadow.trace, shadow.stable, shadow.stable_key, mirror, shadow.settings,
                    shadow.limits, room, counts,
                ).run()
            )  # fmt: skip
            trace.add_done_callback(lambda _: ending.set())
        ready(proxy_url, control_url)
        await _until_the_end(shadow, watch, ending, hook)
        if trace:
            trace.cancel() if not trace.done() else trace.result()
        # Clients come first: what they asked for is answered in full, as long as there is time.
        mirror.closing = True
        until_s = time.monotonic() + shadow.drain_s
        if proxy_url:
            await runners.pop().cleanup()
        await mirror.drain(max(0.0, until_s - time.monotonic()))
        if hook:
            await hook.changed(watch.document, (await watch.decision()).promotion)
            await hook.close(TURN_S)
        return await watch.document()
    finally:
        lag.stop()
        for runner in reversed(runners):
            await runner.cleanup()
        await mirror.drain(0)
        await judge.close()
        await tokens.close()


async def _until_the_end(
    shadow: Shadow, watch: CanaryWatch, ending: asyncio.Event, hook: Webhook | None
) -> None:
    until_s = None if shadow.minutes is None else time.monotonic() + 60 * shadow.minutes
    end = asyncio.ensure_future(ending.wait())
    looked_s = 0.0
    try:
        while not ending.is_set():
            left_s = LOOK_S if until_s is None else min(LOOK_S, until_s - time.monotonic())
            if left_s <= 0:
                return
            judged = asyncio.ensure_future(watch.judged.wait())
            await asyncio.wait((end, judged), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            judged.cancel()
            watch.judged.clear()
            if shadow.pairs is not None and watch.tally.pairs >= shadow.pairs:
                return
            now_s = time.monotonic()
            if not (hook or shadow.until_verdict) or (
                watch.rejected is None and now_s < looked_s + LOOK_S
            ):
                continue
            looked_s = now_s
            promotion = (await watch.decision()).promotion
            if hook:
                await hook.changed(watch.document, promotion)
            if shadow.until_verdict and promotion != HOLD:
                return
    finally:
        end.cancel()


def _keep(failing: FailingPairs, stable: Sent, canary: Sent, judged: PairJudgement) -> None:
    """Write a failing pair aside from the loop, which clients wait for."""
    del stable
    if failing.wants(judged):
        asyncio.get_running_loop().run_in_executor(None, failing.write, canary, judged)


async def _start(
    application: web.Application,
    address: tuple[str, int],
    runners: list[web.AppRunner],
    drain_s: float,
) -> str:
    """Serve an application; return its URL."""
    runner = web.AppRunner(
        application,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=drain_s,
        handler_cancellation=True,  # a client that hangs up ends what was begun for it
        logger=_logger(),
        auto_decompress=False,
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
    )
    await runner.setup()
    runners.append(runner)
    host, port = address
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
    except OSError as error:
        raise UserError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}\n"
            f"see who holds it: ss -ltnp 'sport = :{port}'"
        ) from error
    bound_host, bound_port = runner.addresses[0][:2]
    shown = f"[{bound_host}]" if ":" in bound_host else bound_host
    return f"http://{shown}:{bound_port}"


class _WithoutRequests(logging.Formatter):
    """Says what failed without the request: malformed ones are quoted in errors, keys and all."""

    def format(self, record: logging.LogRecord) -> str:
        kind = record.exc_info[0] if record.exc_info else None
        return f"vllm-gates shadow: a request failed: {kind.__name__ if kind else record.levelname}"


def _logger() -> logging.Logger:
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    handler = logging.StreamHandler()
    handler.setFormatter(_WithoutRequests())
    logger.handlers[:] = [handler]
    return logger


def _on_signals(ending: asyncio.Event) -> None:
    """End well on SIGTERM and Ctrl-C; a second one ends at once."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        if ending.is_set():
            print("ended at once", file=sys.stderr)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, end)
