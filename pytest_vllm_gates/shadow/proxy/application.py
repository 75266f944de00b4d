"""Passes every request on to the stable server unchanged, and the answer back as it arrives."""

from __future__ import annotations

import contextlib
import json
import random
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from pytest_vllm_gates.shadow.copies import STATEFUL, KeptAnswer, RequestCopy
from pytest_vllm_gates.shadow.headers import (
    OF_A_REQUEST,
    for_the_canary,
    passed_on,
    path_for_the_canary,
    target_path,
)
from pytest_vllm_gates.shadow.sessions import AnswerClock, plain_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pytest_vllm_gates.shadow.copies import CopyRoom, MirrorCounts, MirrorLimits
    from pytest_vllm_gates.shadow.headers import Header
    from pytest_vllm_gates.shadow.proxy.outbox import CopyOutbox
    from pytest_vllm_gates.shadow.settings import ShadowSettings

IDLE_S = 2.0
"""How long an idle connection is kept. Servers keep theirs longer (vLLM: 5 s): a request on a
connection that the server has just closed would fail here, and not without the proxy."""
OWN = ("content-type", "date", "server", "content-length")
"""Headers that the library adds to an answer that lacks them."""
BAD_REQUEST, SERVER_ERROR = 400, 500
BAD_GATEWAY = 502
NOT_IMPLEMENTED = 501
PASSED_HEADERS = web.ResponseKey("passed_headers", set[str])


class StableProxy:
    """Answers clients with the stable server's answers, and hands copies to the outbox."""

    def __init__(  # noqa: PLR0917
        self,
        root: str,
        outbox: CopyOutbox,
        share: float,
        settings: ShadowSettings,
        limits: MirrorLimits,
        room: CopyRoom,
        counts: MirrorCounts,
        seed: int | None = None,
    ) -> None:
        """`root` is the stable server's URL without `/v1`; `share` of requests are mirrored."""
        self._root = root
        self._outbox = outbox
        self._share = share
        self._settings = settings
        self._limits = limits
        self._room = room
        self._counts = counts
        self._random = random.Random(seed)  # noqa: S311 - which requests are copied is no secret
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """Return the application that serves clients."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.handle)
        application.on_response_prepare.append(_only_its_headers)
        application.on_cleanup.append(self._close)
        return application

    async def _close(self, _: web.Application) -> None:
        if self._session:
            await self._session.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        self._counts.passed += 1
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return _own_error(NOT_IMPLEMENTED, "websockets are not passed on")
        # Appended to the stable server's URL, any other target could lead to another server.
        path = target_path(request.raw_path)
        if path is None:
            return _own_error(BAD_REQUEST, "the request's target is not a path")
        self._session = self._session or plain_session(keepalive_timeout=IDLE_S)
        reason = self._not_mirrored(request)
        kept = _KeptRequest(request, self._limits.side_bytes if not reason else 0, self._room)
        headers = passed_on(request.raw_headers, OF_A_REQUEST)
        clock = AnswerClock()
        try:
            upstream = await self._session.request(
                request.method,
                URL(self._root + path, encoded=True),
                headers=CIMultiDict(headers),
                data=kept.to_send(),
                allow_redirects=False,
                trace_request_ctx=clock,
            )
        except (aiohttp.ClientError, ValueError) as error:
            self._counts.failed += 1
            kept.forget()
            return _own_error(BAD_GATEWAY, f"the stable server cannot be reached: {_why(error)}")
        except BaseException:  # a client that is gone, above all
            kept.forget()
            raise
        if not reason and BAD_REQUEST <= upstream.status < SERVER_ERROR:
            reason = f"the stable server answers {upstream.status}"
        copy = self._copied(request, path, headers, kept, reason)
        try:
            return await self._answer(request, upstream, copy, clock)
        except BaseException:
            if copy:
                copy.settle(None)
            raise
        finally:
            upstream.close()  # after a whole answer, the connection is back in the pool

    def _not_mirrored(self, request: web.Request) -> str:
        """Return why a request has no copy; '' if it has one."""
        if request.method != "POST" or not request.path.endswith(self._settings.routes):
            return "not a generation"
        if self._outbox.closing:
            return "the shadow is ending"
        if (request.content_length or 0) > self._limits.side_bytes:
            return "the request is too large"
        return "" if self._random.random() < self._share else "not in the sample"

    def _copied(
        self,
        request: web.Request,
        path: str,
        headers: list[Header],
        kept: _KeptRequest,
        reason: str,
    ) -> RequestCopy | None:
        """Return the copy of a request, handed to the outbox; None if it has none."""
        if not reason:
            answered_early = "" if kept.is_whole else "it was answered before it was read"
            reason = kept.why_not or answered_early
        body = b"" if reason else kept.body
        if not reason and self._settings.is_stateful(body):
            reason = STATEFUL
        copy = None
        if not reason:
            copy = RequestCopy(
                request.method,
                path_for_the_canary(path, self._settings.queries),
                for_the_canary(headers, self._settings.headers, None),
                body,
                KeptAnswer(self._room, self._limits.side_bytes),
            )
            reason = self._outbox.offer(copy)
        if reason:
            self._counts.not_mirrored[reason] += 1
            kept.forget()
            return None
        return copy

    @staticmethod
    async def _answer(
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        copy: RequestCopy | None,
        clock: AnswerClock,
    ) -> web.StreamResponse:
        headers = passed_on(upstream.raw_headers, frozenset())
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=CIMultiDict(headers)
        )
        response[PASSED_HEADERS] = {name.lower() for name, _ in headers}
        try:
            await response.prepare(request)
            async for piece in _pieces(upstream):
                if copy:
                    copy.stable.add(clock.seconds, piece)
                await response.write(piece)
        except _BrokenOffError as error:
            # The client must notice that the answer is incomplete, as without the proxy.
            if copy:
                copy.settle(copy.sent(copy.stable, upstream.status, headers, str(error)))
            if request.transport:
                request.transport.abort()
            return response
        except ConnectionError:  # the client is gone
            if copy:
                copy.settle(None)
            return response
        if copy:
            copy.settle(copy.sent(copy.stable, upstream.status, headers))
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response


class _BrokenOffError(Exception):
    """The stable server's answer broke off."""


async def _pieces(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield an answer's body as it arrives; raises `_BrokenOffError`."""
    try:
        async for piece in upstream.content.iter_any():
            yield piece
    except (aiohttp.ClientError, OSError) as error:
        raise _BrokenOffError(f"{type(error).__name__}: {error}") from error


class _KeptRequest:
    """A request's body, kept for its copy while it is passed on."""

    def __init__(self, request: web.Request, most: int, room: CopyRoom) -> None:
        self._request = request
        self._most = most
        self._room = room
        self._kept: list[bytes] = []
        self._size = 0
        self.why_not = ""
        self.is_whole = False

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self._kept)

    def to_send(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body: in one piece if it has arrived, which saves time, else as it arrives."""
        request = self._request
        if not request.can_read_body:
            return None
        if request.content_length is None or not request.content.is_eof():
            return self._pieces()
        body = request.content.read_nowait()
        self._keep(body)
        self.is_whole = True
        return body

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._request.content.iter_any():
            self._keep(piece)
            yield piece
        self.is_whole = True

    def _keep(self, piece: bytes) -> None:
        if not self._most or self.why_not:
            return
        if self._size + len(piece) > self._most:
            self.why_not = "the request is too large"
        elif not self._room.take(len(piece)):
            self.why_not = "no memory is left for copies"
        if self.why_not:
            self.forget()
        else:
            self._size += len(piece)
            self._kept.append(piece)

    def forget(self) -> None:
        """Free the memory."""
        self._room.give_back(self._size)
        self._kept, self._size = [], 0


async def _only_its_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Remove the headers that the library added to the stable server's."""
    passed = response.get(PASSED_HEADERS)
    if passed is not None:
        for name in OWN:
            if name not in passed:
                response.headers.popall(name, None)


def _why(error: Exception) -> str:
    """Return why there was not an answer, without the data: it may be another client's."""
    system = getattr(error, "os_error", error)
    said = getattr(system, "strerror", None)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _own_error(status: int, message: str) -> web.Response:
    """Return an error of the proxy's own, in the form of OpenAI's API."""
    error = {"message": f"vllm-gates shadow: {message}", "type": "proxy_error", "code": status}
    return web.Response(
        status=status, text=json.dumps({"error": error}), content_type="application/json"
    )
