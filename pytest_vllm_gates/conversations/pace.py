"""Streams a long answer and notes when its chunks arrive, and when the server answers besides.

A stream as a person sees it arrive.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.client import http

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.client.chat import Chat
    from pytest_vllm_gates.client.endpoint import Endpoint


@dataclass(frozen=True)
class TimedStream:
    """When the chunks of one stream arrived that carried text.

    `times` are seconds since the request was sent, `sizes` the characters each chunk carried,
    `tokens` the tokens of the answer. `beats` are the times at which the server answered something
    else meanwhile: while it does not, nothing can be said about the stream.
    """

    what: str
    tokens: int
    times: tuple[float, ...]
    sizes: tuple[int, ...]
    beats: tuple[float, ...]

    def silence_between(self, start: float, end: float) -> float:
        """Return the longest time, within a stretch of it, in which the server answered nothing."""
        stops = [start, *(at for at in self.beats if start < at < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(stops))

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON, times in milliseconds."""
        found = asdict(self)
        for name in ("times", "beats"):
            found[f"{name}_ms"] = [round(at * 1000, 1) for at in found.pop(name)]
        return found


TIMES = 8
BEAT_S = 0.01


@dataclass(frozen=True)
class PacedStreams:
    """The streams, and the request they answer."""

    request: Mapping[str, Any]
    streams: Sequence[TimedStream]


def measure(
    chat: Chat,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    what: str,
    late: Callable[[TimedStream], bool],
) -> PacedStreams:
    """Stream the same answer until one is not `late`, eight times at most.

    What is wrong with the way is so every time; what is wrong with the machine is not.
    """
    streams: list[TimedStream] = []
    for _ in range(TIMES):
        streams.append(_timed(chat, endpoint, body, what))
        if not late(streams[-1]):
            break
    return PacedStreams(body, streams)


def _timed(chat: Chat, endpoint: Endpoint, body: Mapping[str, Any], what: str) -> TimedStream:
    times: list[float] = []
    sizes: list[int] = []
    tokens = 0
    begun = time.monotonic()
    with _beats(endpoint) as beats:
        for chunk in chat.chunks(body):
            at = time.monotonic() - begun
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
            if size := sum(_carried(choice.delta) for choice in chunk.choices):
                times.append(at)
                sizes.append(size)
    return TimedStream(what, tokens, tuple(times), tuple(sizes), tuple(at - begun for at in beats))


@contextlib.contextmanager
def _beats(endpoint: Endpoint) -> Iterator[list[float]]:
    """Ask the server for its health again and again; the list fills with the times it answered."""
    answered: list[float] = []
    over = threading.Event()

    def beat() -> None:
        with http.client(endpoint) as client:
            while not over.wait(BEAT_S):
                with contextlib.suppress(httpx.HTTPError):
                    client.get("/health")
                    answered.append(time.monotonic())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join()


def _carried(delta: Any) -> int:
    """Return how many characters of text a delta carries."""
    texts = [delta.content, getattr(delta, "reasoning", None)]
    texts.append(getattr(delta, "reasoning_content", None))
    for call in delta.tool_calls or ():
        if call.function:
            texts += [call.function.name, call.function.arguments]
    return sum(len(text) for text in texts if text)
