"""Keeps responses as they arrive on the wire, for requests that ask for it by a header."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import httpx2 as httpx

from pytest_vllm_gates.facts.exchange import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = "x-request-id"


class Recorder(httpx.HTTPTransport):
    """An HTTP transport that records the responses to requests with an `x-request-id`.

    Safe to use from several threads.
    """

    def __init__(self, *, verify: bool) -> None:
        """Keep nothing yet."""
        super().__init__(verify=verify)
        self._lock = threading.Lock()
        self._recordings: dict[str, Recording] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and put a listener on the response's body."""
        sent = time.monotonic()
        response = super().handle_request(request)
        name = request.headers.get(HEADER)
        if name is not None and isinstance(response.stream, httpx.SyncByteStream):
            kind = response.headers.get("content-type", "")
            response.stream = _Listener(response.stream, self, name, kind, sent)
        return response

    def keep(self, name: str, recording: Recording) -> None:
        """Keep a response under its request's id."""
        with self._lock:
            self._recordings[name] = recording

    def take(self, name: str) -> Recording:
        """Return what was recorded under an id, and forget it; empty where nothing was."""
        with self._lock:
            return self._recordings.pop(name, Recording())


class _Listener(httpx.SyncByteStream):
    def __init__(
        self, stream: httpx.SyncByteStream, recorder: Recorder, name: str, kind: str, sent: float
    ) -> None:
        self._stream = stream
        self._recorder = recorder
        self._name = name
        self._kind = kind
        self._sent = sent
        self._pieces: list[tuple[float, bytes]] = []

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._pieces.append((time.monotonic() - self._sent, piece))
            yield piece

    def close(self) -> None:
        self._recorder.keep(self._name, Recording(self._kind, tuple(self._pieces)))
        self._stream.close()
