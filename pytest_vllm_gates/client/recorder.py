"""Records requests and responses as they pass on the wire, in memory: on a tape, and by request id.

A response goes onto the endpoint's tape once it has ended. The response to a request with an
`x-request-id` is kept under that id as well, until it is taken.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.exchange import Sent, redacted_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

PART_BYTES = 64 * 2**20
"""Limit of one part: its oldest sends are dropped first."""
TAPE_BYTES = 192 * 2**20
"""Limit of all parts: the part that has been idle longest is dropped first."""
WALK = "the walk of the matrix"
BOOT = "the boot"


class Tape:
    """The sends of one server, by the part of the run that sent them: a test, or the walk.

    Safe to use from several threads. Bounded: the sends that are dropped are counted.
    """

    def __init__(self, part_bytes: int = PART_BYTES, tape_bytes: int = TAPE_BYTES) -> None:
        self._lock = threading.Lock()
        self._limits = part_bytes, tape_bytes
        self._parts: dict[str, deque[Sent]] = {}
        self._bytes: dict[str, int] = {}
        self._part = ""
        self.lost: dict[str, int] = {}
        """How many sends of a part are no longer here."""

    def turn_to(self, part: str) -> None:
        """Keep what follows under this part."""
        with self._lock:
            self._part = part

    @contextlib.contextmanager
    def part(self, part: str) -> Iterator[None]:
        """Keep what is sent meanwhile under this part."""
        before = self._part
        self.turn_to(part)
        try:
            yield
        finally:
            self.turn_to(before)

    def keep(self, sent: Sent) -> None:
        """Keep a send under the present part."""
        with self._lock:
            name = self._part
            # The part in use is last.
            part = self._parts[name] = self._parts.pop(name, deque())
            part.append(sent)
            self._bytes[name] = self._bytes.get(name, 0) + sent.size
            part_bytes, tape_bytes = self._limits
            while self._bytes[name] > part_bytes and len(part) > 1:
                self._bytes[name] -= part.popleft().size
                self.lost[name] = self.lost.get(name, 0) + 1
            while sum(self._bytes.values()) > tape_bytes and len(self._parts) > 1:
                oldest = next(iter(self._parts))
                self.lost[oldest] = self.lost.get(oldest, 0) + len(self._parts.pop(oldest))
                del self._bytes[oldest]

    def of(self, *parts: str) -> list[Sent]:
        """Return the sends of these parts, or of all, in the order of sending, part by part."""
        with self._lock:
            return [sent for name in parts or self._parts for sent in self._parts.get(name, ())]

    def forget(self, part: str) -> None:
        """Forget a part."""
        with self._lock:
            self._parts.pop(part, None)
            self._bytes.pop(part, None)

    def parts(self) -> list[str]:
        """Return the names of all parts, the one in use last."""
        with self._lock:
            return list(self._parts)


HEADER = "x-request-id"

# Polled while something else goes on, and without a body.
POLLED = ("/health", "/metrics", "/load")


class Recorder(httpx.HTTPTransport):
    """An HTTP transport that records requests and responses. Safe to use from several threads."""

    def __init__(self, *, verify: bool, tape: Tape | None = None, root: str = "") -> None:
        """Keep it on `tape`; `root` is the path of the server's root, which is left out."""
        super().__init__(verify=verify)
        self._tape = tape
        self._root = root.rstrip("/")
        self._lock = threading.Lock()
        self._recordings: dict[str, Recording] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and put a listener on the response's body."""
        sent_at = time.monotonic()
        try:
            response = super().handle_request(request)
        except Exception as error:
            self._put(request, error=f"{type(error).__name__}: {error}")
            raise
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Listener(response.stream, self, request, response, sent_at)
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
                headers=redacted_headers(request.headers),
                body=request.read(),
                status=response.status_code if response else None,
                response_headers=redacted_headers(response.headers) if response else {},
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
        sent_at: float,
    ) -> None:
        self._stream = stream
        self._recorder = recorder
        self._request = request
        self._response = response
        self._sent_at = sent_at
        self._error = ""
        self._pieces: list[tuple[float, bytes]] = []
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._pieces.append((time.monotonic() - self._sent_at, piece))
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
