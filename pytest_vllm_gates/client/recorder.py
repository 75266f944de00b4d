"""Records requests and responses on the wire: on a tape, and by request id.

A response is added to the endpoint's tape after its end. The response to a request with an
`x-request-id` is kept under that id as well, until it is taken.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client import network
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.bounds import (
    DEFAULT,
    LONG_WAIT_S,
    Bounds,
    Budget,
    LimitExceeded,
    Strikes,
)
from pytest_vllm_gates.client.decoding import PLAIN, Decompressor
from pytest_vllm_gates.client.exchange import Sent, redacted_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.client.tape import Tape

HEADER = "x-request-id"

# Polled in the background, and without a body.
POLLED = ("/health", "/metrics", "/load")


EVENT_STREAM = "text/event-stream"


class Recorder(httpx.HTTPTransport):
    """An HTTP transport that limits and records traffic. Safe to use from several threads."""

    def __init__(
        self,
        *,
        verify: bool | str | None,
        tape: Tape | None = None,
        tape_part: str = "",
        root: str = "",
        bounds: Bounds = DEFAULT,
        strikes: Strikes | None = None,
        to_the_end: bool = False,
    ) -> None:
        """Record on `tape`, under `tape_part` if it is given.

        `root` is the path of the server's root, which is left out.

        `verify` is as in `network.tls`; None without TLS, because loading certificates is slow.
        `strikes` are the server's, shared by all transports. With `to_the_end` a response is read
        even after its client gave up, so that all of it can be judged.
        """
        super().__init__(verify=False)
        self._backend = network.BoundedBackend()
        self._pool = network.pool(self._backend, None if verify is None else network.tls(verify))
        self._bounds = bounds
        self._strikes = strikes or Strikes()
        self.to_the_end = to_the_end
        self._tape = tape
        self._tape_part = tape_part
        self._root = root.rstrip("/")
        self._lock = threading.Lock()
        self._recordings: dict[str, Recording] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and put a listener on the response's body.

        Raises `LimitExceeded`, `Interrupted` and httpx's errors.
        """
        sent_at = time.monotonic()
        wait_s: float | None = request.extensions.get("timeout", {}).get("read")
        request.headers["Accept-Encoding"] = "identity"
        budget = Budget(request.read(), self._bounds, wait_s)
        self._check_strikes(request)
        try:
            with self._backend.within(budget):
                response = super().handle_request(request)
            kind = response.headers.get("content-type", "")
            budget.head_ended(stream=kind.startswith(EVENT_STREAM))
            decompressor = _decompressor(response)
        except Exception as error:
            self.note(error, wait_s)
            self._put(request, error=f"{type(error).__name__}: {error}")
            raise
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Listener(
                response.stream, decompressor, budget, self, request, response, sent_at
            )
        return response

    def _check_strikes(self, request: httpx.Request) -> None:
        try:
            self._strikes.check()
        except LimitExceeded as error:
            self._put(request, error=f"{type(error).__name__}: {error}")
            raise

    def note(self, error: Exception, wait_s: float | None) -> None:
        """Count an error against the server if its answer did not end."""
        if isinstance(error, LimitExceeded):
            self._strikes.exceeded(str(error))
        elif isinstance(error, httpx.ReadTimeout) and (wait_s is None or wait_s >= LONG_WAIT_S):
            self._strikes.timed_out(wait_s)

    def keep(
        self,
        request: httpx.Request,
        response: httpx.Response,
        pieces: tuple[tuple[float, bytes], ...],
        error: str,
    ) -> None:
        """Keep a response that has ended."""
        if not error:
            self._strikes.answered()
        name = request.headers.get(HEADER)
        if name is not None:
            kind = response.headers.get("content-type", "")
            with self._lock:
                self._recordings[name] = Recording(kind, pieces)
        self._put(request, response, pieces, error)

    def take(self, name: str) -> Recording:
        """Return the recording of an id, and forget it; empty without one."""
        with self._lock:
            return self._recordings.pop(name, Recording())

    def _put(
        self,
        request: httpx.Request,
        response: httpx.Response | None = None,
        pieces: tuple[tuple[float, bytes], ...] = (),
        error: str = "",
    ) -> None:
        path = request.url.raw_path.decode("ascii", "replace").removeprefix(self._root)
        if self._tape is None or (request.method == "GET" and path in POLLED):
            return
        self._tape.keep(
            Sent(
                method=request.method,
                path=path,
                headers=redacted_headers(request.headers),
                body=request.read(),
                status=response.status_code if response else None,
                response_headers=redacted_headers(response.headers) if response else {},
                pieces=pieces,
                error=error,
            ),
            self._tape_part,
        )


class _Listener(httpx.SyncByteStream):
    def __init__(  # noqa: PLR0917
        self,
        stream: httpx.SyncByteStream,
        decompressor: Decompressor | None,
        budget: Budget,
        recorder: Recorder,
        request: httpx.Request,
        response: httpx.Response,
        sent_at: float,
    ) -> None:
        self._stream = stream
        self._received = iter(stream)
        self._decompressor = decompressor
        self._budget = budget
        self._recorder = recorder
        self._request = request
        self._response = response
        self._sent_at = sent_at
        self._error = ""
        self._pieces: list[tuple[float, bytes]] = []
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for received in self._received:
                for piece in self._decoded(received):
                    self._budget.piece(piece)
                    self._pieces.append((time.monotonic() - self._sent_at, piece))
                    yield piece
        except httpx.HTTPError as error:
            self._error = f"{type(error).__name__}: {error}"
            wait_s = self._request.extensions.get("timeout", {}).get("read")
            self._recorder.note(error, wait_s)
            raise

    def _decoded(self, received: bytes) -> Iterable[bytes]:
        return self._decompressor.pieces(received) if self._decompressor else (received,)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._recorder.to_the_end:
                with contextlib.suppress(httpx.HTTPError):  # it is counted where it is raised
                    for _ in self:
                        pass
            pieces = tuple(self._pieces)
            self._recorder.keep(self._request, self._response, pieces, self._error)
        self._stream.close()


def _decompressor(response: httpx.Response) -> Decompressor | None:
    """Return a response's decompressor, and remove the encoding from its headers."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in PLAIN:
        return None
    decompressor = Decompressor(encoding)
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)
    return decompressor
