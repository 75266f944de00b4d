"""The locust user: it sends requests over raw sockets, one after the other.

It uses only locust's greenlets and counters. It measures bytes and the kernel's stamps, as
`loop.py` does: no HTTP client reads ahead, and no response time is rounded.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, ClassVar

import gevent
import locust  # it patches the standard library, so it has to come first
from gevent.event import Event
from locust.exception import StopUser

from pytest_vllm_gates.load.generator.socket_client import SPIN_S, Clock

if TYPE_CHECKING:
    from pytest_vllm_gates.load.generator.socket_client import ActiveRequest, Target
    from pytest_vllm_gates.load.types import PlannedRequest, RawResponse


class WorkerShare:
    """A worker's part of a load, with its raw responses."""

    target: Target
    clock: Clock
    closed: bool
    """A user sends its next request when one has ended; else each goes out at its own time."""
    silence_s: float
    seconds: float = math.inf

    def __init__(self) -> None:
        self.begun = Event()
        self.backlog: deque[PlannedRequest] = deque()
        self.raws: list[RawResponse] = []

    def next(self) -> tuple[PlannedRequest, float] | None:
        """Take a request, with its send time; None if there are no more."""
        if not self.backlog:
            return None
        if not self.closed:
            request = self.backlog.popleft()
            return request, request.at_s or 0.0
        if (now := self.clock.now()) >= self.seconds:
            return None
        return self.backlog.popleft(), now

    def until(self, at_s: float) -> None:
        """Wait for a time of the load; busy-wait for the last moment."""
        while (left := at_s - self.clock.now()) > 0:
            gevent.sleep(max(0.0, left - SPIN_S))

    def send(self, request: PlannedRequest, intended_s: float) -> RawResponse:
        """Send a request and read its answer to the end."""
        active = self.target.active(request, intended_s)
        error = self._exchange(active)
        self.raws.append(raw := active.ended(error, self.clock))
        return raw

    def _exchange(self, active: ActiveRequest) -> str:
        """Return why an answer is incomplete."""
        trouble = "no socket"
        try:
            with self.target.socket() as connection:
                connection.settimeout(self.silence_s)
                active.begun_s = active.last_s = self.clock.now()
                trouble = "cannot connect"
                connection.connect(self.target.address)
                more = True
                while more:
                    if active.left:
                        trouble = "the request could not be sent"
                        connection.sendall(active.left)
                        active.sent(self.clock)
                    trouble = "the connection broke"
                    more = active.read(connection, self.clock)
        except OSError as error:
            active.last_s = self.clock.now()
            if isinstance(error, TimeoutError) and error.errno is None:  # ours, not the kernel's
                return f"nothing came for {self.silence_s:g} s"
            return f"{trouble}: {error}"
        return ""


class LoadUser(locust.User):
    """One user of a load; its worker sets the share."""

    share: ClassVar[WorkerShare]

    def on_start(self) -> None:
        """Wait for the start of the load."""
        self.share.begun.wait()
        self.share.until(0.0)

    @locust.task
    def ask(self) -> None:
        """Send the next request, and report it to locust."""
        due = self.share.next()
        if due is None:
            raise StopUser
        request, intended_s = due
        self.share.until(intended_s)
        raw = self.share.send(request, intended_s)
        self.environment.events.request.fire(
            request_type="POST",
            name=request.path,
            response_time=(raw.ended_s - raw.intended_s) * 1e3,
            response_length=len(raw.answer),
            exception=OSError(raw.error) if raw.error else None,
            context={},
        )
