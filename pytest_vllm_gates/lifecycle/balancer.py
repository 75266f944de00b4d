"""Spreads requests over replicas, and removes one as a careful rolling update does.

A replica that is to end first gets no new requests, and ends once its open requests are over. A
`preStop` hook has this purpose
(https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pytest_vllm_gates.client.completion import Completion

CLIENTS = 4
PAUSE_S = 0.4
"""The pause of each client between its requests."""
MOST_REQUESTS = 20_000
LONGEST_WAIT_S = 120.0
"""How long a request waits for a replica if none is available."""


@dataclass(frozen=True)
class BalancedRequest:
    """One request: the number of its question, the replica that answered, and the answer."""

    number: int
    replica: str
    question: int
    answer: Completion


@dataclass
class _Member:
    name: str
    ask: Callable[[int], Completion]
    open: int = 0


@dataclass
class Balancer:
    """Replicas by name, each with the number of its open requests."""

    _members: dict[str, _Member] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def put_in(self, name: str, ask: Callable[[int], Completion]) -> None:
        """Send requests to a replica from now on; `ask` answers the question of a number."""
        with self._changed:
            self._members[name] = _Member(name, ask)
            self._changed.notify_all()

    def take_out(self, name: str, most_s: float) -> int:
        """Send a replica nothing more; return how many requests are still open after so long."""
        with self._changed:
            member = self._members.pop(name)
            self._changed.wait_for(lambda: not member.open, most_s)
            return member.open

    def send(self, number: int, question: int) -> BalancedRequest | None:
        """Send to the replica with the fewest requests; None if there was none for long."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._members), LONGEST_WAIT_S):
                return None
            # A tie goes to the replica that was added first: each second request goes to the other.
            members = [*self._members.values()]
            turned = members[number % len(members) :] + members[: number % len(members)]
            member = min(turned, key=lambda each: each.open)
            member.open += 1
        try:
            answer = member.ask(question)
        finally:
            with self._changed:
                member.open -= 1
                self._changed.notify_all()
        return BalancedRequest(number, member.name, question, answer)


class BalancedTraffic:
    """Clients that send the same questions over and over until they are stopped."""

    def __init__(self, balancer: Balancer, questions: int) -> None:
        self._balancer = balancer
        self._questions = questions
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._begun = 0
        self.requests: list[BalancedRequest] = []
        self.unanswered = 0
        """Requests that found no replica."""
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._clients: list[Future[None]] = []

    def __enter__(self) -> Self:
        self._clients = [self._pool.submit(self._ask) for _ in range(CLIENTS)]
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown()
        for client in self._clients:
            client.result()

    def wait_for(self, requests: int, most_s: float) -> None:
        """Wait until so many requests are over, or so long."""
        end = time.monotonic() + most_s
        while len(self.requests) < requests and time.monotonic() < end:
            time.sleep(PAUSE_S)

    def _ask(self) -> None:
        while not self._ended.is_set() and self._begun < MOST_REQUESTS:
            with self._lock:
                number = self._begun
                self._begun += 1
            done = self._balancer.send(number, number % self._questions)
            with self._lock:
                if done is None:
                    self.unanswered += 1
                else:
                    self.requests.append(done)
            self._ended.wait(PAUSE_S)
