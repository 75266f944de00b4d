"""Shadows a recorded trace: its requests go to both sides, or to the canary alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pytest_vllm_gates.redaction.values import REDACTED
from pytest_vllm_gates.shadow.copies import STATEFUL, KeptAnswer, RequestCopy
from pytest_vllm_gates.shadow.headers import for_the_canary, passed_on
from pytest_vllm_gates.shadow.sessions import AnswerClock, plain_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, MirrorLimits
    from pytest_vllm_gates.shadow.mirroring.mirror import Mirror
    from pytest_vllm_gates.shadow.settings import ShadowSettings

AT_ONCE = 4
JSON_BODY = ("Content-Type", "application/json")


class RecordedTrace:
    """Sends recorded requests, a few at a time, and the same requests to the canary."""

    def __init__(  # noqa: PLR0917
        self,
        sends: Sequence[Sent],
        stable: str | None,
        key: str | None,
        mirror: Mirror,
        settings: ShadowSettings,
        limits: MirrorLimits,
        room: CopyRoom,
        counts: MirrorCounts,
    ) -> None:
        """`stable` is a server's URL without `/v1`; None: the recorded answers are that side."""
        self._sends = sends
        self._stable = stable
        self._key = key
        self._mirror = mirror
        self._settings = settings
        self._limits = limits
        self._room = room
        self._counts = counts

    async def run(self) -> None:
        """Send all of them."""
        places = asyncio.Semaphore(AT_ONCE)
        session = plain_session(force_close=True, total_s=self._limits.canary_s)

        async def one(sent: Sent) -> None:
            async with places:
                await self._one(session, sent)

        try:
            await asyncio.gather(*(one(sent) for sent in self._sends))
        finally:
            await session.close()

    async def _one(self, session: aiohttp.ClientSession, sent: Sent) -> None:
        self._counts.passed += 1
        if not sent.path.partition("?")[0].endswith(self._settings.routes):
            self._counts.not_mirrored["not a generation"] += 1
            return
        if self._settings.is_stateful(sent.body):
            self._counts.not_mirrored[STATEFUL] += 1
            return
        headers = [(name, value) for name, value in sent.headers.items() if value != REDACTED]
        allowed = for_the_canary(headers, self._settings.headers, None)
        if not any(name.lower() == "content-type" for name, _ in allowed):
            allowed.append(JSON_BODY)
        if not self._room.take(len(sent.body)):
            self._counts.not_mirrored["no memory is left for copies"] += 1
            return
        kept = KeptAnswer(self._room, self._limits.side_bytes)
        copy = RequestCopy(sent.method, sent.path, allowed, sent.body, kept)
        if reason := self._mirror.offer(copy):
            self._counts.not_mirrored[reason] += 1
            self._room.give_back(len(sent.body))
            return
        if self._stable is None:
            # Its times are from another machine and time: without them no figure is compared.
            answer = ((0.0, sent.answer),) if sent.pieces else ()
            copy.settle(replace(sent, headers=dict(allowed), pieces=answer))
        else:
            copy.settle(await self._ask(session, copy))
        # The next one waits for this one's canary: the trace's arrival times are not replayed.
        await self._mirror.done(copy)

    async def _ask(self, session: aiohttp.ClientSession, copy: RequestCopy) -> Sent:
        headers = CIMultiDict(copy.headers)
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        clock = AnswerClock()
        try:
            async with session.request(
                copy.method,
                URL(f"{self._stable}{copy.path}", encoded=True),
                headers=headers,
                data=copy.body,
                allow_redirects=False,
                trace_request_ctx=clock,
            ) as response:
                async for piece in response.content.iter_any():
                    copy.stable.add(clock.seconds, piece)
                answered = passed_on(response.raw_headers, frozenset())
                return copy.sent(copy.stable, response.status, answered)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._counts.failed += 1
            return copy.sent(copy.stable, None, (), f"{type(error).__name__}: {error}")
