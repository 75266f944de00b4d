"""The canary's side of a shadow from start to end: sends copies, judges, answers controllers."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from pytest_vllm_gates.shadow.control import control_application
from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts
from pytest_vllm_gates.shadow.decide import HOLD
from pytest_vllm_gates.shadow.judging import JudgeProcess
from pytest_vllm_gates.shadow.mirroring.mirror import Mirror
from pytest_vllm_gates.shadow.sessions import listen, plain_session
from pytest_vllm_gates.shadow.tokens.partings import PartingTokens
from pytest_vllm_gates.shadow.watch import CanaryWatch
from pytest_vllm_gates.shadow.webhook import Webhook

if TYPE_CHECKING:
    from aiohttp import web

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.failing import FailingPairs
    from pytest_vllm_gates.shadow.plan import Shadow
    from pytest_vllm_gates.shadow.tally import PairJudgement

LOOK_S = 1.0
"""How often the decision is computed when no failure triggers it."""
TURN_S = 15.0
"""The part of `drain_s` that is left for the webhook after the copies."""


class Mirroring:
    """Mirrors until the end. A context manager: leaving it ends all that it began."""

    def __init__(self, shadow: Shadow, most_bytes: int | None = None) -> None:
        """Keep at most `most_bytes` of requests and answers; by default the shadow's limit."""
        self._shadow = shadow
        self.counts = MirrorCounts()
        self.room = CopyRoom(shadow.limits.all_bytes if most_bytes is None else most_bytes)
        self._judge = JudgeProcess(shadow.family, shadow.project)
        self._tokens = PartingTokens(
            shadow.canary, shadow.canary_key, functools.partial(plain_session, force_close=True)
        )
        self._watch = CanaryWatch(
            shadow.settings, shadow.question, self.counts, self._judge,
            {"stable": shadow.stable or "recorded", "canary": shadow.canary},
            shadow.redactor.failure,
            functools.partial(_keep, shadow.failing) if shadow.failing else None,
            self._tokens,
        )  # fmt: skip
        self.mirror = Mirror(
            shadow.canary, shadow.canary_key, shadow.limits, self.room, self.counts,
            self._watch.take,
        )  # fmt: skip
        self._hook = Webhook(shadow.webhook) if shadow.webhook else None
        self._runners: list[web.AppRunner] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self._runners:
            await runner.cleanup()
        await self.mirror.drain(0)
        await self._judge.close()
        await self._tokens.close()

    async def start(self) -> str:
        """Answer controllers; return the URL. Raises `UserError` where the port cannot be had."""
        application = control_application(self._watch, with_page=self._shadow.with_page)
        return await listen(application, self._shadow.control, self._runners, 0.0)

    async def until_the_end(self, ending: asyncio.Event) -> None:
        """Wait for `ending`, or for the event after which the shadow ends."""
        shadow, watch, hook = self._shadow, self._watch, self._hook
        until_s = None if shadow.minutes is None else time.monotonic() + 60 * shadow.minutes
        end = asyncio.ensure_future(ending.wait())
        looked_s = 0.0
        try:
            while not ending.is_set():
                left_s = LOOK_S if until_s is None else min(LOOK_S, until_s - time.monotonic())
                if left_s <= 0:
                    return
                judged = asyncio.ensure_future(watch.judged.wait())
                await asyncio.wait(
                    (end, judged), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
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

    async def finish(self, left_s: float) -> dict[str, Any]:
        """Wait so long for copies in progress, send to the webhook, and return the document."""
        await self.mirror.drain(left_s)
        if self._hook:
            await self._hook.changed(self._watch.document, (await self._watch.decision()).promotion)
            await self._hook.close(TURN_S)
        return await self._watch.document()


def _keep(failing: FailingPairs, stable: Sent, canary: Sent, judged: PairJudgement) -> None:
    """Write a failing pair in a thread, outside the event loop."""
    del stable
    if failing.wants(judged):
        asyncio.get_running_loop().run_in_executor(None, _write, failing, canary, judged)


def _write(failing: FailingPairs, canary: Sent, judged: PairJudgement) -> None:
    try:
        failing.write(canary, judged)
    except Exception as error:  # noqa: BLE001 - an incident that cannot be written ends no shadow
        print(f"an incident is not kept: {type(error).__name__}: {error}", file=sys.stderr)
