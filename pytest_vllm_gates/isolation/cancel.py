"""Disconnects clients in the middle of an answer, and watches the server's metrics afterwards."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx

from pytest_vllm_gates.client import network

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.metrics import Load, Metrics

NEARLY_ALL = 0.9
"""The share of all tokens from which on unfinished answers count as complete."""


@dataclass(frozen=True)
class CancelResult:
    """Several clients left at the same time; the server's metrics count the requests."""

    streamed: bool
    clients: int
    asked_tokens: int
    """Tokens requested by all clients together."""
    before: int
    """Requests in flight before the clients came."""
    during: int
    """The most requests in flight while the clients were connected."""
    after: int
    """The fewest requests in flight after they left."""
    tokens_before: int
    """Tokens that the server had generated when the clients were last seen."""
    tokens_after: int
    """Tokens that the server generated afterwards."""
    seconds: float
    """From the clients' leaving to the last measurement."""
    others: bool = False
    """Whether requests of other clients were seen, before or at the same time."""

    @property
    def arrived(self) -> bool:
        """Whether all requests were in flight at once before the clients left."""
        return self.during >= self.before + self.clients

    @property
    def freed(self) -> bool:
        """Whether no more requests are in flight than before."""
        return self.after <= self.before

    @property
    def ran_out(self) -> bool:
        """Whether the answers may have ended by themselves, so that free slots prove nothing."""
        return self.tokens_before + self.tokens_after >= self.asked_tokens * NEARLY_ALL

    def as_evidence(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)


CLIENTS = 4
ENDLESS_TOKENS = 20_000
"""The requested length of an answer, unless the context is shorter: it must not end by itself."""
PROMPT_TOKENS = 256
"""Room for the prompt in a short context."""
TRIES = 3
"""On a busy machine a small model may finish before the metrics are read."""
ARRIVE_S = 30.0
QUIET_S = 3.0
FREED_S = 60.0
FAR_ON = 0.25
"""The share of all tokens after which the server clearly generates without a client."""
OTHERS_S = 10.0
"""How long a server with other clients is watched: its slots cannot be distinguished."""
SETTLED_S = 1.0
"""After this time the prompts of the disconnected clients are read, or never will be."""
LOOK_S = 0.05


def disconnect(
    endpoint: Endpoint, metrics: Metrics, body: Mapping[str, Any], context: int, *, streamed: bool
) -> CancelResult:
    """Request endless answers, disconnect in the middle, and watch until the requests are gone.

    The watch ends when a good part of the answers was generated, or after a minute. If the answers
    ended before the clients could leave or the metrics were read, it tries again.
    """
    tokens = min(ENDLESS_TOKENS, max(context - PROMPT_TOKENS, context // 2))
    request = {"model": endpoint.model, **body, "max_tokens": tokens, "ignore_eos": True}
    for _ in range(TRIES):
        result = _disconnect_once(
            endpoint, metrics, {**request, "stream": streamed}, CLIENTS * tokens
        )
        if result.arrived and not (result.freed and result.ran_out):
            break
    return result


def _disconnect_once(
    endpoint: Endpoint, metrics: Metrics, request: Mapping[str, Any], most_tokens: int
) -> CancelResult:
    at_rest = _at_rest(metrics)
    before = at_rest.in_flight
    clients = [_Client(endpoint, request) for _ in range(CLIENTS)]
    if request["stream"]:
        for client in clients:
            client.read_first()
    arrived, during = _wait_for_arrival(metrics, at_rest, most_tokens)
    for client in clients:
        client.leave()
    watch = LeaveWatch(before, arrived, during)
    while not watch.over(most_tokens):
        time.sleep(LOOK_S)
        watch.look(metrics.load())
    return CancelResult(
        streamed=request["stream"],
        clients=CLIENTS,
        asked_tokens=most_tokens,
        before=before,
        during=during,
        after=watch.after,
        tokens_before=arrived.generated - at_rest.generated,
        tokens_after=watch.last.generated - arrived.generated,
        seconds=round(watch.seconds, 3),
        others=watch.others,
    )


class LeaveWatch:
    """Watches a server's metrics after clients left."""

    def __init__(self, before: int, left: Load, during: int) -> None:
        """Requests in flight: `before` at rest, `during` the most with clients; `left` is now."""
        self._before, self._left = before, left
        self._settled: Load | None = None
        self.last = left
        self.after = during
        """The fewest requests that were seen in flight."""
        self.others = before > 0 or during > before + CLIENTS
        """Whether requests of other clients were seen."""

    @property
    def seconds(self) -> float:
        """From the clients' leaving to the last measurement."""
        return self.last.at - self._left.at

    def look(self, load: Load) -> None:
        """Add one measurement.

        The disconnected clients send nothing more: an increase of requests, or prompts that are
        read after theirs must have been, come from other clients.
        """
        if load.in_flight > max(self.last.in_flight, self._before):
            self.others = True
        if load.at - self._left.at >= SETTLED_S:
            self._settled = self._settled or load
            self.others = self.others or load.read > self._settled.read
        self.after = min(self.after, load.in_flight)
        self.last = load

    def over(self, most_tokens: int) -> bool:
        """Return whether the watch is over; `most_tokens` is the total of all answers.

        Tokens of other clients do not show that the server generates without a client.
        """
        if self.after <= self._before:
            return True
        if self.others:
            return self.seconds >= OTHERS_S
        generated = self.last.generated - self._left.generated
        return generated > most_tokens * FAR_ON or self.seconds >= FREED_S


def _wait_for_arrival(metrics: Metrics, at_rest: Load, most_tokens: int) -> tuple[Load, int]:
    """Wait until all requests are in flight, or have ended.

    Return the last measurement, and the most requests in flight.
    """
    most = 0
    deadline = time.monotonic() + ARRIVE_S
    while True:
        load = metrics.load()
        most = max(most, load.in_flight)
        generated = load.generated - at_rest.generated
        over = generated > most_tokens * NEARLY_ALL or load.at > deadline
        if most >= at_rest.in_flight + CLIENTS or over:
            return load, most
        time.sleep(LOOK_S)


def _at_rest(metrics: Metrics) -> Load:
    """Return the server's load, after earlier requests have had time to end."""
    deadline = time.monotonic() + QUIET_S
    while (load := metrics.load()).in_flight and load.at < deadline:
        time.sleep(LOOK_S)
    return load


class _Client:
    """One connection with one request, which can be closed at any moment."""

    def __init__(self, endpoint: Endpoint, body: Mapping[str, Any]) -> None:
        url = urlsplit(endpoint.base_url)
        self._connection = (
            http.client.HTTPSConnection(
                url.netloc, timeout=ARRIVE_S, context=network.tls(endpoint.verify)
            )
            if url.scheme == "https"
            else http.client.HTTPConnection(url.netloc, timeout=ARRIVE_S)
        )
        self._reply: http.client.HTTPResponse | None = None
        headers = {"Content-Type": "application/json", **endpoint.request_headers()}
        path = f"{url.path.rstrip('/')}/chat/completions"
        self._connection.request("POST", path, json.dumps(body), headers)

    def read_first(self) -> None:
        """Read a stream's first line; raises `httpx.HTTPError` if none comes."""
        try:
            self._reply = self._connection.getresponse()
            self._reply.readline()
        except (OSError, http.client.HTTPException) as error:
            raise httpx.ReadError(f"no stream begins: {type(error).__name__}: {error}") from error

    def leave(self) -> None:
        """Close the connection before the answer is complete."""
        if self._reply:
            self._reply.close()
        self._connection.close()
