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
"""The share of all tokens from which on answers without an end are taken for complete."""


@dataclass(frozen=True)
class CancelResult:
    """Several clients left at the same time; requests are counted as the server's metrics do."""

    streamed: bool
    clients: int
    asked_tokens: int
    """Tokens that all answers together would have had."""
    before: int
    """Requests in flight before these came."""
    during: int
    """The most that were seen while all were there."""
    after: int
    """The fewest that were seen since they left."""
    tokens_before: int
    """Tokens the server had generated when they were last seen."""
    tokens_after: int
    """Tokens the server went on to generate."""
    seconds: float
    """From their leaving to the last look."""
    others: bool = False
    """Whether somebody else's requests were seen, before these or beside them."""

    @property
    def arrived(self) -> bool:
        """Whether all were in flight at once before they left."""
        return self.during >= self.before + self.clients

    @property
    def freed(self) -> bool:
        """Whether no more are in flight than before."""
        return self.after <= self.before

    @property
    def ran_out(self) -> bool:
        """Whether the answers may have ended by themselves, so that free slots tell nothing."""
        return self.tokens_before + self.tokens_after >= self.asked_tokens * NEARLY_ALL

    def as_evidence(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return asdict(self)


CLIENTS = 4
ENDLESS_TOKENS = 20_000
"""What an answer is made to have, unless the context is shorter: it must not end by itself."""
PROMPT_TOKENS = 256
"""Room for the prompt in a short context."""
TRIES = 3
"""On a busy machine a small model may be done before anybody looks."""
ARRIVE_S = 30.0
QUIET_S = 3.0
FREED_S = 60.0
FAR_ON = 0.25
"""The share of all tokens after which the server clearly goes on for nobody."""
OTHERS_S = 10.0
"""How long a server that others use is watched: its slots cannot be told apart."""
SETTLED_S = 1.0
"""After so long the prompts of those who left are read, or never will be."""
LOOK_S = 0.05


def disconnect(
    endpoint: Endpoint, metrics: Metrics, body: Mapping[str, Any], context: int, *, streamed: bool
) -> CancelResult:
    """Request endless answers, disconnect in the middle, and watch until the requests are gone.

    The watch ends when a good part of the answers was generated, or after a minute. If the answers
    were over before the clients could leave or the metrics be read, it is tried again.
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
    """Looks at a server since clients left, and what they come to."""

    def __init__(self, before: int, left: Load, during: int) -> None:
        """`before` were in flight at rest, `during` at most with the clients; `left` is now."""
        self._before, self._left = before, left
        self._settled: Load | None = None
        self.last = left
        self.after = during
        """The fewest that were seen in flight."""
        self.others = before > 0 or during > before + CLIENTS
        """Whether requests of somebody else were seen."""

    @property
    def seconds(self) -> float:
        """From the leaving to the last look."""
        return self.last.at - self._left.at

    def look(self, load: Load) -> None:
        """Take one look in.

        Nobody of those who left sends again: more requests than before, or prompts that are read
        once theirs must be, are somebody else's.
        """
        if load.in_flight > max(self.last.in_flight, self._before):
            self.others = True
        if load.at - self._left.at >= SETTLED_S:
            self._settled = self._settled or load
            self.others = self.others or load.read > self._settled.read
        self.after = min(self.after, load.in_flight)
        self.last = load

    def over(self, most_tokens: int) -> bool:
        """Return whether enough was seen; `most_tokens` are those of all answers together.

        What others generate is no sign that the server goes on for nobody.
        """
        if self.after <= self._before:
            return True
        if self.others:
            return self.seconds >= OTHERS_S
        generated = self.last.generated - self._left.generated
        return generated > most_tokens * FAR_ON or self.seconds >= FREED_S


def _wait_for_arrival(metrics: Metrics, at_rest: Load, most_tokens: int) -> tuple[Load, int]:
    """Wait until all requests are in flight, or over already.

    Return the last look, and the most that were in flight.
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
    """Return what the server is busy with, once earlier requests have had time to end."""
    deadline = time.monotonic() + QUIET_S
    while (load := metrics.load()).in_flight and load.at < deadline:
        time.sleep(LOOK_S)
    return load


class _Client:
    """One connection with one request on it, that can be closed at any moment."""

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
        """Read a stream's first line; raises `httpx.HTTPError` when none comes."""
        try:
            self._reply = self._connection.getresponse()
            self._reply.readline()
        except (OSError, http.client.HTTPException) as error:
            raise httpx.ReadError(f"no stream begins: {type(error).__name__}: {error}") from error

    def leave(self) -> None:
        """Close the connection, whatever is still to come."""
        if self._reply:
            self._reply.close()
        self._connection.close()
