"""Clients that go away in the middle of an answer, and what the server's metrics say of them.

What became of requests whose clients went away.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2 as httpx

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.server.metrics import Metrics

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
LOOK_S = 0.05


def leave(
    endpoint: Endpoint, metrics: Metrics, body: Mapping[str, Any], context: int, *, streamed: bool
) -> CancelResult:
    """Ask for answers without an end, go away in the middle, and watch until they are gone.

    The watch is given up when a good part of the answers was generated, or after a minute. Where
    the answers were over before anybody could leave or look, it is tried again.
    """
    tokens = min(ENDLESS_TOKENS, max(context - PROMPT_TOKENS, context // 2))
    request = {"model": endpoint.model, **body, "max_tokens": tokens, "ignore_eos": True}
    for _ in range(TRIES):
        left = _leave_once(endpoint, metrics, {**request, "stream": streamed}, CLIENTS * tokens)
        if left.arrived and not (left.freed and left.ran_out):
            break
    return left


def _leave_once(
    endpoint: Endpoint, metrics: Metrics, request: Mapping[str, Any], asked: int
) -> CancelResult:
    before, begun = _quiet(metrics), metrics.generated()
    clients = [_Client(endpoint, request) for _ in range(CLIENTS)]
    if request["stream"]:
        for client in clients:
            client.read_first()
    during, so_far = _arrived(metrics, before, begun, asked)
    for client in clients:
        client.leave()
    left = time.monotonic()
    after, further = during, 0
    while after > before and further <= asked * FAR_ON and time.monotonic() - left < FREED_S:
        time.sleep(LOOK_S)
        after = min(after, metrics.in_flight())
        further = metrics.generated() - begun - so_far
    seconds = round(time.monotonic() - left, 3)
    return CancelResult(
        request["stream"], CLIENTS, asked, before, during, after, so_far, further, seconds
    )


def _arrived(metrics: Metrics, before: int, begun: int, asked: int) -> tuple[int, int]:
    """Wait until all requests are in flight, or over already.

    Return the most that were in flight, and the tokens generated for them so far.
    """
    most = 0
    deadline = time.monotonic() + ARRIVE_S
    while True:
        most = max(most, metrics.in_flight())
        so_far = metrics.generated() - begun
        over = so_far > asked * NEARLY_ALL or time.monotonic() > deadline
        if most >= before + CLIENTS or over:
            return most, so_far
        time.sleep(LOOK_S)


def _quiet(metrics: Metrics) -> int:
    """Return what is in flight, once those have had time to end who came before us."""
    deadline = time.monotonic() + QUIET_S
    while (found := metrics.in_flight()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


class _Client:
    """One connection with one request on it, that can be closed at any moment."""

    def __init__(self, endpoint: Endpoint, body: Mapping[str, Any]) -> None:
        url = urlsplit(endpoint.base_url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.netloc, timeout=ARRIVE_S)
        self._reply: http.client.HTTPResponse | None = None
        headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
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
