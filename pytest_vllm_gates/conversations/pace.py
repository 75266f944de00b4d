"""Measures the arrival of a stream's chunks, and whether the server answers meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.form import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint


@dataclass(frozen=True)
class TimedStream:
    """The arrival times of one stream's chunks that carried text.

    `times` are seconds since the request was sent, `sizes` the characters in each chunk, `tokens`
    the tokens of the answer. `beats` are the times at which the server answered /health: while it
    does not, a silent stream proves nothing.
    """

    what: str
    tokens: int
    times: tuple[float, ...]
    sizes: tuple[int, ...]
    beats: tuple[float, ...]

    def silence_between(self, start: float, end: float) -> float:
        """Return the longest time between `start` and `end` without an answer of the server."""
        stops = [start, *(at for at in self.beats if start < at < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(stops))

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON, times in milliseconds."""
        evidence = asdict(self)
        for name in ("times", "beats"):
            evidence[f"{name}_ms"] = [round(at * 1000, 1) for at in evidence.pop(name)]
        return evidence


TIMES = 8
BEAT_S = 0.01


@dataclass(frozen=True)
class PacedStreams:
    """The streams, and their request."""

    request: Mapping[str, Any]
    streams: Sequence[TimedStream]


def measure(
    chat: Chat,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    name: str,
    late: Callable[[TimedStream], bool],
) -> PacedStreams:
    """Stream the same answer until one is not `late`, at most eight times.

    A fault on the way from the server shows every time; a busy machine does not.
    """
    streams: list[TimedStream] = []
    for _ in range(TIMES):
        streams.append(_timed(chat, endpoint, body, name))
        if not late(streams[-1]):
            break
    return PacedStreams(body, streams)


def _timed(chat: Chat, endpoint: Endpoint, body: Mapping[str, Any], name: str) -> TimedStream:
    times: list[float] = []
    sizes: list[int] = []
    tokens = 0
    begun = time.monotonic()
    with _beats(endpoint) as beats, reading("the stream"):
        for chunk in chat.chunks(body):
            at = time.monotonic() - begun
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            if size := sum(_text_length(choice.delta) for choice in chunk.choices):
                times.append(at)
                sizes.append(size)
    return TimedStream(name, tokens, tuple(times), tuple(sizes), tuple(at - begun for at in beats))


@contextlib.contextmanager
def _beats(endpoint: Endpoint) -> Iterator[list[float]]:
    """Poll /health in a thread; the list fills with the times at which the server answered."""
    answered: list[float] = []
    stopped = threading.Event()

    def beat() -> None:
        with http.client(endpoint) as client:
            while not stopped.wait(BEAT_S):
                with contextlib.suppress(httpx.HTTPError):
                    client.get("/health")
                    answered.append(time.monotonic())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield answered
    finally:
        stopped.set()
        thread.join()


def _text_length(delta: Any) -> int:
    """Return the number of characters of text in a delta."""
    fields = [delta.content, getattr(delta, "reasoning", None)]
    fields.append(getattr(delta, "reasoning_content", None))
    for call in delta.tool_calls or ():
        if call.function:
            fields += [call.function.name, call.function.arguments]
    return sum(len(text) for text in fields if text)
