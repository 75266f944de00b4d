"""Drives a load over raw sockets from one thread; what comes is stamped by the kernel's own clock.

An answer's bytes are read and kept; what they say is found out afterwards (`answers.py`). Their
time is that of the packet (`SO_TIMESTAMPNS`, see socket(7)), not that of the read: a client that
falls behind for a moment does not see the server slower for it. Until the stream's next packet,
that is: of packets that wait together the kernel keeps the last one's time.
"""

from __future__ import annotations

import errno
import gc
import heapq
import math
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.timing import Driven, Planned, Raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STAMP = getattr(socket, "SO_TIMESTAMPNS", 35)
"""Linux's number on every architecture that Python runs on but MIPS, PA-RISC and SPARC."""
STAMP_BYTES = socket.CMSG_SPACE(struct.calcsize("qq"))
READ_BYTES = 2**14
"""Python makes room for as many before every read: much more, and the kernel maps memory for each
(mallopt(3), M_MMAP_THRESHOLD), which takes several times as long as to read a chunk."""
SPIN_S = 0.001
"""The last of a wait is spent awake: the kernel wakes a sleeper up to so much late."""
STAMPING_S = 1.0
IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK)


class Target:
    """The server of a load: where it listens, and what goes into every request's head."""

    def __init__(self, host: str, port: int, headers: dict[str, str]) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.family, self.address = found[0], found[4]
        lines = {"Host": f"{host}:{port}", "Connection": "close", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def bytes_of(self, request: Planned) -> bytes:
        """Return a request as it is sent."""
        head = f"POST {request.path} HTTP/1.1\r\n{self._head}Content-Length: {len(request.body)}"
        return f"{head}\r\n\r\n".encode("latin-1") + request.body


class _Flight:
    """One request under way."""

    def __init__(self, request: Planned, intended_s: float, data: bytes) -> None:
        self.request = request
        self.intended_s = intended_s
        self.left = memoryview(data)
        self.sent_s: float | None = None
        self.last_s = intended_s
        self.pieces: list[bytes] = []
        self.arrivals: list[tuple[float, int]] = []
        self.size = 0
        self.lag_s = 0.0

    def ended(self, error: str) -> Raw:
        return Raw(
            self.request.name, self.intended_s, self.sent_s, self.last_s, b"".join(self.pieces),
            tuple(self.arrivals), self.lag_s, error,
        )  # fmt: skip


class Loop:
    """Drives one load; `run` may be called once."""

    def __init__(self, target: Target, *, silence_s: float) -> None:
        """`silence_s`: how long an answer may stay away, or stop, before it is given up."""
        self._target = target
        self._silence_s = silence_s
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._flights: dict[int, _Flight] = {}
        self._raws: list[Raw] = []
        self._looks_s = 0.0
        self._stamped = _stamping()

    def run(
        self, requests: Iterable[Planned], users: int | None = None, *, seconds: float = math.inf
    ) -> Driven:
        """Send the requests at their times, or, given `users`, so many at a time as they end.

        `seconds`: when to stop sending more.
        """
        self._seconds = seconds
        collects = gc.isenabled()
        gc.disable()  # a pause of the collector's is not the server's
        self._monotonic, self._unix = time.monotonic(), time.time()
        try:
            if users is None:
                self._open(requests)
            else:
                self._closed(iter(requests), users)
        finally:
            self._epoll.close()
            for one in (*self._sockets.values(), *self._stamped):
                one.close()
            if collects:
                gc.enable()
        return Driven(self._unix, self._now(), tuple(self._raws))

    def _now(self) -> float:
        return time.monotonic() - self._monotonic

    def _open(self, requests: Iterable[Planned]) -> None:
        due = [
            (one.at_s or 0.0, number, one)
            for number, one in enumerate(requests)
            if (one.at_s or 0.0) <= self._seconds
        ]
        heapq.heapify(due)
        while due or self._flights:
            while due and due[0][0] <= self._now():
                at_s, _, request = heapq.heappop(due)
                self._start(request, at_s)
            self._turn(due[0][0] if due else None)

    def _closed(self, requests: Iterator[Planned], users: int) -> None:
        more = True
        while more or self._flights:
            while more and len(self._flights) < users:
                request = next(requests, None) if self._now() < self._seconds else None
                if request is None:
                    more = False
                else:
                    self._start(request, self._now())
            if self._flights:
                self._turn(None)

    def _start(self, request: Planned, intended_s: float) -> None:
        flight = _Flight(request, intended_s, self._target.bytes_of(request))
        try:
            made = socket.socket(self._target.family, socket.SOCK_STREAM)
        except OSError as error:
            flight.last_s = self._now()
            self._raws.append(flight.ended(f"no socket: {error}"))
            return
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, STAMP, 1)
        status = made.connect_ex(self._target.address)
        number = made.fileno()
        self._sockets[number], self._flights[number] = made, flight
        flight.last_s = self._now()
        if status and status not in IN_PROGRESS:
            self._end(number, f"cannot connect: {errno.errorcode.get(status, status)}")
            return
        self._epoll.register(number, select.EPOLLOUT | select.EPOLLIN)

    def _turn(self, due_s: float | None) -> None:
        """Wait until something can be read or written, or until it is time; do it."""
        wait_s = self._silence_s / 4
        if due_s is not None:
            wait_s = min(wait_s, due_s - self._now() - SPIN_S)
        ready = self._epoll.poll(max(0.0, wait_s))
        for number, event in ready:
            if event & select.EPOLLOUT:
                self._write(number)
            if number in self._flights and event & ~select.EPOLLOUT:
                self._read(number)
        if (now := self._now()) >= self._looks_s:
            self._looks_s = now + self._silence_s / 4
            self._give_up(now)

    def _write(self, number: int) -> None:
        flight = self._flights[number]
        try:
            while flight.left:
                flight.left = flight.left[self._sockets[number].send(flight.left) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(number, f"the request could not be sent: {error}")
            return
        flight.sent_s = flight.last_s = self._now()
        self._epoll.modify(number, select.EPOLLIN)

    def _read(self, number: int) -> None:
        flight = self._flights[number]
        try:
            data, extra, _, _ = self._sockets[number].recvmsg(READ_BYTES, STAMP_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            flight.last_s = self._now()
            self._end(number, f"the connection broke: {error}")
            return
        if not data:
            self._end(number, "")
            return
        now = at = self._now()
        for level, kind, stamp in extra:
            if (level, kind) == (socket.SOL_SOCKET, STAMP):
                seconds, nanoseconds = struct.unpack("qq", stamp)
                at = seconds - self._unix + nanoseconds * 1e-9
        flight.lag_s = max(flight.lag_s, now - at)
        flight.last_s = at
        flight.size += len(data)
        flight.pieces.append(data)
        flight.arrivals.append((at, flight.size))

    def _end(self, number: int, error: str) -> None:
        self._sockets.pop(number).close()
        self._raws.append(self._flights.pop(number).ended(error))

    def _give_up(self, now: float) -> None:
        for number, flight in [*self._flights.items()]:
            if now - flight.last_s > self._silence_s:
                flight.last_s = now
                self._end(number, f"nothing came for {self._silence_s:g} s")


def _stamping() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that keep the kernel stamping packets, which it begins a little late.

    It turns the stamps on from a queue of its own once the first socket asks for them, and until
    then packets have none.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    other.setsockopt(socket.SOL_SOCKET, STAMP, 1)
    deadline = time.monotonic() + STAMPING_S
    while time.monotonic() < deadline:
        one.send(b"?")
        if other.recvmsg(1, STAMP_BYTES)[1]:
            break
        time.sleep(SPIN_S)
    return one, other
