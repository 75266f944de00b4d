"""Drives a load over raw sockets (`socket_client.py`) from one thread, with its own loop."""

from __future__ import annotations

import errno
import gc
import heapq
import math
import select
from typing import TYPE_CHECKING

from pytest_vllm_gates.load.generator.socket_client import SPIN_S, Clock, stamping
from pytest_vllm_gates.load.types import DrivenLoad, PlannedRequest, RawResponse

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.load.generator.socket_client import ActiveRequest, Target

WRITABLE = select.EPOLLOUT
IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK)


class Loop:
    """Drives one load; `run` may be called once."""

    def __init__(self, target: Target, *, silence_s: float) -> None:
        """`silence_s`: how long an answer may send nothing before it is abandoned."""
        self._target = target
        self._silence_s = silence_s
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._active: dict[int, ActiveRequest] = {}
        self._raws: list[RawResponse] = []
        self._looks_s = 0.0
        self._stamped = stamping()

    def run(
        self,
        requests: Iterable[PlannedRequest],
        users: int | None = None,
        *,
        seconds: float = math.inf,
    ) -> DrivenLoad:
        """Send the requests at their times, or, given `users`, so many at a time as they end.

        `seconds`: when to stop sending more.
        """
        self._seconds = seconds
        collects = gc.isenabled()
        gc.disable()  # a garbage collection must not be counted as the server's
        self._clock = Clock()
        try:
            if users is None:
                self._open(requests)
            else:
                self._closed(iter(requests), users)
        finally:
            self._epoll.close()
            for connection in (*self._sockets.values(), *self._stamped):
                connection.close()
            if collects:
                gc.enable()
        return DrivenLoad(self._clock.begun_unix_s, self._now(), tuple(self._raws))

    def _now(self) -> float:
        return self._clock.now()

    def _open(self, requests: Iterable[PlannedRequest]) -> None:
        due = [
            (request.at_s or 0.0, number, request)
            for number, request in enumerate(requests)
            if (request.at_s or 0.0) <= self._seconds
        ]
        heapq.heapify(due)
        while due or self._active:
            while due and due[0][0] <= self._now():
                at_s, _, request = heapq.heappop(due)
                self._start(request, at_s)
            self._turn(due[0][0] if due else None)

    def _closed(self, requests: Iterator[PlannedRequest], users: int) -> None:
        more = True
        while more or self._active:
            while more and len(self._active) < users:
                request = next(requests, None) if self._now() < self._seconds else None
                if request is None:
                    more = False
                else:
                    self._start(request, self._now())
            if self._active:
                self._turn(None)

    def _start(self, request: PlannedRequest, intended_s: float) -> None:
        active = self._target.active(request, intended_s)
        try:
            connection = self._target.socket()
        except OSError as error:
            active.last_s = self._now()
            self._raws.append(active.ended(f"no socket: {error}", self._clock))
            return
        connection.setblocking(False)
        status = connection.connect_ex(self._target.address)
        number = connection.fileno()
        self._sockets[number], self._active[number] = connection, active
        active.begun_s = active.last_s = self._now()
        if status and status not in IN_PROGRESS:
            self._end(number, f"cannot connect: {errno.errorcode.get(status, status)}")
            return
        self._epoll.register(number, WRITABLE | select.EPOLLIN)

    def _turn(self, due_s: float | None) -> None:
        """Wait until a socket is readable or writable, or until it is time; do the work."""
        wait_s = self._silence_s / 4
        if due_s is not None:
            wait_s = min(wait_s, due_s - self._now() - SPIN_S)
        ready = self._epoll.poll(max(0.0, wait_s))
        for number, event in ready:
            if event & WRITABLE:
                self._write(number)
            if event != WRITABLE and number in self._active:
                self._read(number)
        if (now := self._now()) >= self._looks_s:
            self._looks_s = now + self._silence_s / 4
            self._give_up(now)

    def _write(self, number: int) -> None:
        active = self._active[number]
        try:
            while active.left:
                active.left = active.left[self._sockets[number].send(active.left) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(number, f"the request could not be sent: {error}")
            return
        active.sent(self._clock)
        self._epoll.modify(number, select.EPOLLIN)

    def _read(self, number: int) -> None:
        active = self._active[number]
        try:
            more = active.read(self._sockets[number], self._clock)
        except BlockingIOError:
            return
        except OSError as error:
            active.last_s = self._now()
            self._end(number, f"the connection broke: {error}")
            return
        if not more:
            self._end(number, "")
        elif active.left:
            self._epoll.modify(number, WRITABLE | select.EPOLLIN)

    def _end(self, number: int, error: str) -> None:
        self._sockets.pop(number).close()
        self._raws.append(self._active.pop(number).ended(error, self._clock))

    def _give_up(self, now: float) -> None:
        for number, active in [*self._active.items()]:
            if now - active.last_s > self._silence_s:
                active.last_s = now
                self._end(number, f"nothing came for {self._silence_s:g} s")
