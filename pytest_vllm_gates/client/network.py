"""Connections to a server: each carries one request, within its budget, until the run is cut off.

A connection is not used again: the server may close an idle one just as the next request is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import httpcore2 as httpcore
import httpx2 as httpx

from pytest_vllm_gates.client.bounds import Interrupted
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from httpcore2 import SOCKET_OPTION

    from pytest_vllm_gates.client.bounds import Budget

MOST_AT_ONCE = 256


class Connections:
    """All connections of this process, so that Ctrl-C can end them at once.

    `end` may be called from a signal handler: it takes no lock.
    """

    def __init__(self) -> None:
        self._streams: dict[int, BoundedStream] = {}
        self._ended = False

    def begin(self) -> None:
        """Allow requests."""
        self._ended = False

    def end(self) -> None:
        """Give up every request under way, and send none until `begin`."""
        self._ended = True
        for stream in list(self._streams.values()):
            stream.shut()

    def check(self) -> None:
        """Raise `Interrupted` after `end`."""
        if self._ended:
            raise Interrupted("the run was interrupted")

    def add(self, stream: BoundedStream) -> None:
        """Remember a connection while it is open."""
        self._streams[id(stream)] = stream

    def remove(self, stream: BoundedStream) -> None:
        """Forget a connection."""
        self._streams.pop(id(stream), None)


CONNECTIONS = Connections()


class BoundedStream(httpcore.NetworkStream):
    """A connection that reads within a budget."""

    def __init__(self, stream: httpcore.NetworkStream, budget: Budget) -> None:
        self._stream = stream
        self._budget = budget
        CONNECTIONS.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has come; raises `LimitExceeded` or `Interrupted` beside httpcore's own."""
        CONNECTIONS.check()
        wait_s = self._budget.timeout(timeout)
        try:
            data = self._stream.read(max_bytes, wait_s)
        except httpcore.NetworkError:
            CONNECTIONS.check()
            raise
        except httpcore.ReadTimeout:
            # The shorter of two times is over: the budget's raises under its own name.
            self._budget.timeout(timeout)
            raise
        if not data:
            CONNECTIONS.check()
        self._budget.received(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        CONNECTIONS.check()
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        CONNECTIONS.remove(self)
        self._stream.close()

    def shut(self) -> None:
        """Shut the connection: a thread that waits on it reads its end."""
        connection = self._stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Encrypt the connection."""
        CONNECTIONS.remove(self)
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return BoundedStream(stream, self._budget)

    def get_extra_info(self, info: str) -> Any:
        """Return what is known of the connection."""
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore.NetworkBackend):
    """Connects for the request whose budget this thread has set."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()
        self._thread = threading.local()

    def turn_to(self, budget: Budget) -> None:
        """Take the next connection that this thread opens for a request with this budget."""
        self._thread.budget = budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect; raises `Interrupted` beside httpcore's own."""
        CONNECTIONS.check()
        stream = self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return BoundedStream(stream, self._thread.budget)

    def sleep(self, seconds: float) -> None:
        """Wait between two tries."""
        self._backend.sleep(seconds)


def tls(verify: bool | str) -> ssl.SSLContext:
    """Return what TLS connections are made with.

    `verify`: True for the usual authorities, False for none, else the path of a file or folder of
    certificate authorities. Raises `UserError` for one that has none.
    """
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify=verify)
    import ssl  # noqa: PLC0415 - only for authorities of one's own

    try:
        if os.path.isdir(verify):  # noqa: PTH112 - the path is a text here
            return ssl.create_default_context(capath=verify)
        return ssl.create_default_context(cafile=verify)
    except OSError as error:  # SSLError is one
        raise UserError(
            f"verify: {verify!r} is not a PEM file of certificate authorities: {error}"
        ) from error


def pool(backend: BoundedBackend, ssl_context: ssl.SSLContext | None) -> httpcore.ConnectionPool:
    """Return a pool whose connections carry one request each."""
    return httpcore.ConnectionPool(
        ssl_context=ssl_context,
        max_connections=MOST_AT_ONCE,
        max_keepalive_connections=0,
        network_backend=backend,
    )
