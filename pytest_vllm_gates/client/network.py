"""Connections to a server: each has one request, within its budget, until an interrupt.

Connections are not reused: the server may close an idle one just as the next request is sent.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import httpcore2 as httpcore
import httpx2 as httpx

from pytest_vllm_gates.client import sockets
from pytest_vllm_gates.client.bounds import Interrupted
from pytest_vllm_gates.client.sockets import CONNECTIONS
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterable, Iterator

    from httpcore2 import SOCKET_OPTION

    from pytest_vllm_gates.client.bounds import Budget

MOST_AT_ONCE = 256


class BoundedStream(httpcore.NetworkStream):
    """A connection that reads within a budget, until the run is interrupted."""

    def __init__(self, connection: socket.socket, budget: Budget) -> None:
        self._connection = connection
        self._budget = budget
        try:
            CONNECTIONS.add(connection)
        except Interrupted:
            self.close()
            raise

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes; raises `LimitExceeded`, `Interrupted` and httpcore's errors."""
        CONNECTIONS.check()
        wait_s = self._budget.timeout(timeout)
        try:
            self._connection.settimeout(wait_s)  # fails if another thread closed it
            data = self._connection.recv(max_bytes)
        except TimeoutError as error:
            # The shorter of two limits is over: the budget raises its own error.
            self._budget.timeout(timeout)
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            CONNECTIONS.check()
            raise httpcore.ReadError(str(error)) from error
        if not data:
            CONNECTIONS.check()
        self._budget.received(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes; raises `Interrupted` and httpcore's errors."""
        CONNECTIONS.check()
        view = memoryview(buffer)
        try:
            while view:
                self._connection.settimeout(timeout)
                view = view[self._connection.send(view) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            CONNECTIONS.check()
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        CONNECTIONS.remove(self._connection)
        self._connection.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Encrypt the connection; raises `Interrupted` and httpcore's errors."""
        CONNECTIONS.remove(self._connection)
        try:
            encrypted = sockets.encrypt(self._connection, ssl_context, server_hostname, timeout)
        except TimeoutError as error:
            self.close()
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from error
        except Interrupted:
            self.close()
            raise
        return BoundedStream(encrypted, self._budget)

    def get_extra_info(self, info: str) -> Any:
        """Return httpcore's extra information of the connection: `socket` and `ssl_object`."""
        if info == "socket":
            return self._connection
        if info == "ssl_object" and hasattr(self._connection, "selected_alpn_protocol"):
            return self._connection
        return None


class BoundedBackend(httpcore.NetworkBackend):
    """Connects for the request whose budget this thread has set."""

    def __init__(self) -> None:
        self._thread = threading.local()

    @contextlib.contextmanager
    def within(self, budget: Budget) -> Iterator[None]:
        """Use this budget for the connections that this thread opens in the block."""
        self._thread.budget = budget
        try:
            yield
        finally:
            del self._thread.budget  # it has the request's body, which may be megabytes

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002 - httpcore's interface
        socket_options: Iterable[SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Connect; raises `Interrupted` and httpcore's errors."""
        try:
            connection = sockets.connect(host, port, timeout)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return BoundedStream(connection, self._thread.budget)

    def sleep(self, seconds: float) -> None:
        """Wait between two tries."""
        time.sleep(seconds)


def tls(verify: bool | str) -> ssl.SSLContext:
    """Return the context for TLS connections.

    `verify`: True for the usual authorities, False for none, else the path of a file or folder of
    certificate authorities. Raises `UserError` for a path without authorities.
    """
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify=verify)
    import ssl  # noqa: PLC0415 - only for authorities of one's own

    try:
        if os.path.isdir(verify):  # noqa: PTH112 - the path is a text here
            return ssl.create_default_context(capath=verify)
        return ssl.create_default_context(cafile=verify)
    except OSError as error:  # SSLError is an OSError
        raise UserError(
            f"verify: {verify!r} is not a PEM file of certificate authorities: {error}"
        ) from error


def pool(backend: BoundedBackend, ssl_context: ssl.SSLContext | None) -> httpcore.ConnectionPool:
    """Return a pool whose connections have one request each."""
    return httpcore.ConnectionPool(
        ssl_context=ssl_context,
        max_connections=MOST_AT_ONCE,
        max_keepalive_connections=0,
        network_backend=backend,
    )
