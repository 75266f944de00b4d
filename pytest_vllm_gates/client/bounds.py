"""Limits for the size and the duration of a server's answer.

A server is not trusted: it may send without end, or very slowly. Each answer has a budget.
An answer over its budget ends with `LimitExceeded`, which names the limit. It is an
`httpx.RequestError`: code that handles a failed request handles it too.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2 as httpx

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20
HEAD_BYTES = 256 * 1024
"""Status line and headers, including earlier answers such as `100 Continue`."""
LEAST_S, WAITS = 10.0, 3
"""Headers, and a body in one piece, may each take `WAITS` times the request's timeout for a byte;
at least `LEAST_S`, at most `Bounds.body_s`."""
DEPTH = 150
"""How deep JSON may be nested; Python's parser gives up at about 900."""
PIECE_BYTES = 200
"""Memory of a stream's piece besides its text."""
EVENT_PIECES = 10_000
"""Most pieces of a stream without an event: single bytes without end are not an answer."""
EVENTS_BESIDE = 64
EVENTS_PER_TOKEN = 8
"""Most events of a stream for each requested token, plus `EVENTS_BESIDE`: vLLM sends one for a
chat, about two if an answer has items with a beginning and an end (Responses). A proxy may forward
the text character by character."""
SILENCE_S = 1.0
"""Extra seconds for a stream without events over one without bytes, which has its own error."""
STRIKES = 3
LONG_WAIT_S = 30.0
"""A timeout of a shorter wait is the test's choice, and not evidence about the server."""
SIZE_OPTION, TIME_OPTION = "--max-response-mib", "--response-timeout"

EVENT_END = b"\n\n"
MAX_TOKENS = re.compile(rb'"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})')
CHOICES = re.compile(rb'"(?:n|best_of)"\s*:\s*(\d{1,6})')
STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class LimitExceeded(httpx.RequestError):
    """A server's answer exceeded one of the limits; the text names it."""


class Interrupted(httpx.RequestError):
    """The run was interrupted: the request was given up, or not sent."""


@dataclass(frozen=True)
class Bounds:
    """The limits of one answer. All are far beyond what vLLM sends."""

    body_bytes: int = 8 * MIB
    """For an answer in one piece, decompressed: parsed JSON takes up to twenty times as much."""
    stream_bytes: int = 16 * MIB
    """For a stream, with `PIECE_BYTES` for each piece."""
    body_s: float = 30.0
    """From the first byte to the end of the headers, and from there to the end of a body."""
    stream_s: float = 1800.0
    """From the headers to the end of a stream."""

    @classmethod
    def of(cls, mib: int, seconds: float) -> Bounds:
        """Return the limits for answers of `mib` MiB, and streams of twice that and `seconds`."""
        return cls(
            body_bytes=mib * MIB,
            stream_bytes=2 * mib * MIB,
            body_s=min(cls.body_s, seconds),
            stream_s=seconds,
        )


DEFAULT = Bounds()


class Strikes:
    """How often one server exceeded a limit; after `STRIKES` no more requests are sent to it.

    Otherwise a slow stream would cost every request of every gate its whole time limit. A busy
    machine may cause timeouts: only timeouts in a row count, until an answer ends normally.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exceeded = self._timeouts = 0
        self._last = ""

    def exceeded(self, message: str) -> None:
        """Count an answer that exceeded a limit."""
        with self._lock:
            self._exceeded += 1
            self._last = message

    def timed_out(self, wait_s: float | None) -> None:
        """Count a request that waited `wait_s` seconds for a byte in vain."""
        with self._lock:
            self._timeouts += 1
            self._last = "it sent nothing" + ("" if wait_s is None else f" for {wait_s:g} s")

    def answered(self) -> None:
        """Forget the timeouts: the server answers."""
        with self._lock:
            self._timeouts = 0

    def check(self) -> None:
        """Raise `LimitExceeded` for a server with too many strikes."""
        if max(self._exceeded, self._timeouts) >= STRIKES:
            raise LimitExceeded(
                f"no more requests are sent to this server after {STRIKES} answers that exceeded "
                f"a limit, the last one: {self._last}"
            )


class Budget:
    """The remaining limits of one request's answer. One thread at a time uses it."""

    def __init__(
        self,
        request: bytes,
        bounds: Bounds,
        wait_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now; `request` is the sent body, `wait_s` its timeout for a byte."""
        self._wait_s = wait_s
        wanted = bounds.body_s if wait_s is None else max(LEAST_S, WAITS * wait_s)
        self._body_s = min(bounds.body_s, wanted)
        self._request = request
        self._bounds = bounds
        self._clock = clock
        self._deadline: float | None = None
        self._limit = ""
        self._head_bytes = 0
        self._in_head = True
        self._stream = False
        self._ends = 0.0
        self._size = self._pieces = self._events = self._idle_pieces = 0
        self._most_events: int | None = None
        self._tail = b""
        self._opened = 0
        self._next_scan = DEPTH
        self._event = bytearray()

    def timeout(self, wanted: float | None) -> float | None:
        """Return the seconds to wait for the next bytes, at most `wanted`.

        Raises `LimitExceeded` when the time is over.
        """
        if self._deadline is None:
            return wanted
        left = self._deadline - self._clock()
        if left <= 0:
            raise LimitExceeded(self._limit)
        return left if wanted is None else min(wanted, left)

    def received(self, data: bytes) -> None:
        """Count bytes from the network that belong to the head of the answer."""
        if not self._in_head:
            return
        if self._deadline is None and data:
            self._until(self._body_s, f"the answer's headers did not end in {self._body_s:g} s")
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            raise LimitExceeded(f"the answer's headers take more than {HEAD_BYTES // 1024} KiB")

    def head_ended(self, *, stream: bool) -> None:
        """Begin the body."""
        self._in_head = False
        self._stream = stream
        if stream:
            self._ends = self._clock() + self._bounds.stream_s
            self._progress()
        else:
            self._until(self._body_s, f"the answer's body did not end in {self._body_s:g} s")

    def piece(self, data: bytes) -> None:
        """Count a piece of the body, decompressed. Raises `LimitExceeded`."""
        self._size += len(data)
        self._pieces += 1
        if self._stream:
            self._count_stream(data)
        elif self._size > self._bounds.body_bytes:
            raise LimitExceeded(_too_large("answer", self._bounds.body_bytes))
        self._check_depth(data)
        self.timeout(None)

    def _count_stream(self, data: bytes) -> None:
        limit = self._bounds.stream_bytes
        if self._size + self._pieces * PIECE_BYTES > limit:
            raise LimitExceeded(_too_large("stream", limit))
        window = self._tail + data
        events = window.count(b"data:")
        self._tail = window[-4:]
        self._idle_pieces = 0 if events else self._idle_pieces + 1
        if self._idle_pieces > EVENT_PIECES:
            raise LimitExceeded(f"the stream has {EVENT_PIECES:,} pieces without an event")
        if events:
            self._events += events
            self._progress()
        if self._events > EVENTS_BESIDE and self._events > self._allowed_events():
            raise LimitExceeded(
                f"the stream has more than {self._allowed_events():,} events, "
                f"{EVENTS_PER_TOKEN} for each requested token and {EVENTS_BESIDE} more"
            )

    def _allowed_events(self) -> int:
        """Return the most events of an answer to the request; computed when first needed."""
        if self._most_events is None:
            tokens = [int(number) for number in MAX_TOKENS.findall(self._request)]
            choices = [int(number) for number in CHOICES.findall(self._request)]
            self._most_events = (
                EVENTS_BESIDE + EVENTS_PER_TOKEN * max(tokens) * max([1, *choices])
                if tokens
                else self._bounds.stream_bytes
            )
        return self._most_events

    def _progress(self) -> None:
        now = self._clock()
        idle = self._ends if self._wait_s is None else now + self._wait_s + SILENCE_S
        if self._ends <= idle:
            seconds = self._bounds.stream_s
            self._deadline = self._ends
            self._limit = f"the stream did not end in {seconds:g} s ({TIME_OPTION} sets it)"
        else:
            self._deadline = idle
            self._limit = f"the stream sent no event for {self._wait_s:g} s"

    def _until(self, seconds: float, limit: str) -> None:
        self._deadline = self._clock() + seconds
        self._limit = limit

    def _check_depth(self, data: bytes) -> None:
        """Raise `LimitExceeded` for JSON, or an event, that is nested too deep."""
        first, *others = data.split(EVENT_END) if self._stream else [data]
        self._extend(first)
        for event in others:
            self._event.clear()
            self._opened, self._next_scan = 0, DEPTH
            self._extend(event)

    def _extend(self, data: bytes) -> None:
        self._event += data
        self._opened += data.count(b"[") + data.count(b"{")
        if self._opened > self._next_scan:
            self._next_scan = 2 * self._opened
            if _depth(self._event) > DEPTH:
                raise LimitExceeded(f"the answer's JSON is nested deeper than {DEPTH} levels")


def _depth(text: bytes | bytearray) -> int:
    """Return how deep the brackets of JSON are nested, strings left out."""
    depth = deepest = 0
    for match in STRING_OR_BRACKET.finditer(text):
        token = match[0][:1]
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"]}":
            depth -= 1
    return deepest


def _too_large(what: str, limit: int) -> str:
    return f"the {what} is larger than {limit // MIB} MiB ({SIZE_OPTION} sets the limit)"
