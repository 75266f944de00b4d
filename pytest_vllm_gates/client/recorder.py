"""Keeps what is sent and what comes back, as it arrives on the wire: on a tape, and by request.

A response goes onto the endpoint's tape once it has ended. That of a request with an
`x-request-id` is kept under it as well, for whoever asked to take.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.incidents.types import Sent, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.tape import Tape

HEADER = "x-request-id"
# Asked again and again while something else goes on, and without a body.
POLLED = ("/health", "/metrics", "/load")


class Recorder(httpx.HTTPTransport):
    """An HTTP transport that keeps what passes. Safe to use from several threads."""

    def __init__(self, *, verify: bool, tape: Tape | None = None, root: str = "") -> None:
        """Keep it on `tape`; `root` is the path of the server's root, which is left out."""
        super().__init__(verify=verify)
        self._tape = tape
        self._root = root.rstrip("/")
        self._lock = threading.Lock()
        self._recordings: dict[str, Recording] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and put a listener on the response's body."""
        sent = time.monotonic()
        try:
            response = super().handle_request(request)
        except Exception as error:
            self._put(request, error=f"{type(error).__name__}: {error}")
            raise
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Listener(response.stream, self, request, response, sent)
        return response

    def keep(
        self,
        request: httpx.Request,
        response: httpx.Response,
        pieces: tuple[tuple[float, bytes], ...],
        error: str,
    ) -> None:
        """Keep a response that has ended."""
        name = request.headers.get(HEADER)
        if name is not None:
            kind = response.headers.get("content-type", "")
            with self._lock:
                self._recordings[name] = Recording(kind, pieces)
        self._put(request, response, pieces, error)

    def take(self, name: str) -> Recording:
        """Return what was recorded under an id, and forget it; empty where nothing was."""
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
                headers=told(request.headers),
                body=request.read(),
                status=response.status_code if response else None,
                response_headers=told(response.headers) if response else {},
                pieces=pieces,
                error=error,
            )
        )


class _Listener(httpx.SyncByteStream):
    def __init__(
        self,
        stream: httpx.SyncByteStream,
        recorder: Recorder,
        request: httpx.Request,
        response: httpx.Response,
        sent: float,
    ) -> None:
        self._stream = stream
        self._recorder = recorder
        self._request = request
        self._response = response
        self._sent = sent
        self._error = ""
        self._pieces: list[tuple[float, bytes]] = []
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._pieces.append((time.monotonic() - self._sent, piece))
                yield piece
        except httpx.HTTPError as error:
            self._error = f"{type(error).__name__}: {error}"
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            pieces = tuple(self._pieces)
            self._recorder.keep(self._request, self._response, pieces, self._error)
        self._stream.close()
