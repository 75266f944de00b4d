"""Sends one request over a raw socket and keeps its answer with the kernel's time stamps.

An answer's bytes are kept as they come; `parse.py` reads them afterwards. Their time is that of
the packet (`SO_TIMESTAMPNS`, see socket(7)), not of the read: a client that falls behind for a
moment does not measure a slower server. This is exact until the stream's next packet: for packets
that wait together the kernel keeps the last one's time.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

from pytest_vllm_gates.load.generator.encryption import Encryption
from pytest_vllm_gates.load.types import RawResponse

if TYPE_CHECKING:
    import ssl

    from pytest_vllm_gates.load.types import PlannedRequest

STAMP = getattr(socket, "SO_TIMESTAMPNS", 35)
"""Linux's number on every architecture that Python runs on but MIPS, PA-RISC and SPARC."""
TIMESPEC = struct.Struct("qq")
STAMP_BYTES = socket.CMSG_SPACE(TIMESPEC.size)
READ_BYTES = 2**14
"""The buffer that Python allocates before every read: if it were much larger, the kernel would map
memory each time (mallopt(3), M_MMAP_THRESHOLD), several times slower than reading a chunk."""
SPIN_S = 0.001
"""The end of a wait is a busy-wait: the kernel wakes a sleeper up to so much late."""
STAMPING_S = 1.0
Verify = bool | str | None
"""How a server's certificate is checked, as `network.tls` takes it; None: plain HTTP."""


class Clock:
    """Seconds from the start of a load, by this process's clock and by the kernel's stamps."""

    def __init__(self, begun_unix_s: float | None = None) -> None:
        """`begun_unix_s`: when the load starts or started; None: now."""
        monotonic, unix = time.monotonic(), time.time()
        self.begun_unix_s = unix if begun_unix_s is None else begun_unix_s
        self._monotonic = monotonic + (self.begun_unix_s - unix)

    def now(self) -> float:
        """Return how long ago the load started; below zero if it starts later."""
        return time.monotonic() - self._monotonic

    def stamped(self, stamp: bytes) -> float:
        """Return the kernel's time of what was read."""
        seconds, nanoseconds = TIMESPEC.unpack(stamp)
        return float(seconds - self.begun_unix_s + nanoseconds * 1e-9)


class Target:
    """The server of a load: its address, and the common part of every request's head."""

    def __init__(
        self, host: str, port: int, headers: dict[str, str], verify: Verify = None
    ) -> None:
        """`verify` as in `network.tls`; None for plain HTTP.

        Raises `UserError` for a file without certificate authorities.
        """
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.family, self.address = info[0], info[4]
        self._host, self._tls = host, None if verify is None else _http_over_tls(verify)
        name = f"[{host}]" if ":" in host else host
        lines = {"Host": f"{name}:{port}", "Connection": "close", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def active(self, request: PlannedRequest, intended_s: float) -> ActiveRequest:
        """Return a request that is about to be sent."""
        data = self.bytes_of(request)
        encryption = Encryption(self._tls, self._host, data) if self._tls else None
        return ActiveRequest(request, intended_s, data, encryption)

    def bytes_of(self, request: PlannedRequest) -> bytes:
        """Return a request as the server reads it."""
        head = f"POST {request.path} HTTP/1.1\r\n{self._head}Content-Length: {len(request.body)}"
        return f"{head}\r\n\r\n".encode("latin-1") + request.body

    def socket(self) -> socket.socket:
        """Return a socket for one request, not connected yet, whose packets are stamped."""
        connection = socket.socket(self.family, socket.SOCK_STREAM)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, STAMP, 1)
        return connection


class ActiveRequest:
    """One request in progress."""

    def __init__(
        self,
        request: PlannedRequest,
        intended_s: float,
        data: bytes,
        encryption: Encryption | None = None,
    ) -> None:
        self.request = request
        self.intended_s = intended_s
        self._encryption = encryption
        self.left = memoryview(encryption.to_send() if encryption else data)
        """The bytes still to be sent; reading may add some."""
        self.begun_s: float | None = None
        self.sent_s: float | None = None
        self.last_s = intended_s
        self.reads: list[tuple[float, list[tuple[int, int, bytes]], bytes]] = []
        """The time of each read, with the kernel's control messages and the data."""

    def sent(self, clock: Clock) -> None:
        """Note that nothing is left to be sent: of the request, or of TLS before it."""
        self.left = memoryview(b"")
        self.last_s = clock.now()
        if self.sent_s is None and (self._encryption is None or self._encryption.established):
            self.sent_s = self.last_s

    def read(self, source: socket.socket, clock: Clock) -> bool:
        """Read from the socket; return False if the answer has ended.

        Raises `OSError` if the connection, or TLS on it, broke.
        """
        data, stamps, _, _ = source.recvmsg(READ_BYTES, STAMP_BYTES)
        if not data:
            return False
        self.last_s = clock.now()
        more = True
        if self._encryption:
            data, more = self._encryption.received(data)
            self.left = memoryview(bytes(self.left) + self._encryption.to_send())
        if data:
            self.reads.append((self.last_s, stamps, data))
        return more

    def ended(self, error: str, clock: Clock) -> RawResponse:
        """Return the raw response, by the kernel's times."""
        arrivals, lag_s, size = [], 0.0, 0
        for read_s, stamps, data in self.reads:
            # The only control message requested is the stamp; a packet may have none.
            at = clock.stamped(stamps[0][2]) if stamps else read_s
            lag_s = max(lag_s, read_s - at)
            size += len(data)
            arrivals.append((at, size))
        ended_s, sent_s = self.last_s, self.sent_s
        if arrivals and not error:
            ended_s = arrivals[-1][0]
        if arrivals and sent_s is not None:
            # This process may have been kept from the clock for longer than the server took.
            sent_s = min(sent_s, arrivals[0][0])
        return RawResponse(
            self.request.name, self.intended_s, sent_s, ended_s,
            b"".join([data for _, _, data in self.reads]), tuple(arrivals), lag_s, error,
            self.begun_s,
        )  # fmt: skip


def _http_over_tls(verify: bool | str) -> ssl.SSLContext:
    from pytest_vllm_gates.client import network  # noqa: PLC0415 - plain HTTP needs none of it

    context = network.tls(verify)
    context.set_alpn_protocols(["http/1.1"])  # RFC 7301; a gateway would choose HTTP/2
    return context


def stamping() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that keep the kernel stamping packets, because stamping starts late.

    The kernel turns stamps on asynchronously after the first socket requests them; packets have
    none until then.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    receiver.setsockopt(socket.SOL_SOCKET, STAMP, 1)
    deadline = time.monotonic() + STAMPING_S
    while time.monotonic() < deadline:
        sender.send(b"?")
        if receiver.recvmsg(1, STAMP_BYTES)[1]:
            break
        time.sleep(SPIN_S)
    return sender, receiver
