"""Connections to a server: each carries one request, within its budget, until the run is cut off.

A connection is not used again: the server may close an idle one just as the next request is sent.
"""

from __future__ import annotations

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
    from collections.abc import Iterable

    from httpcore2 import SOCKET_OPTION

    from pytest_vllm_gates.client.bounds import Budget

MOST_AT_ONCE = 256


class BoundedStream(httpcore.NetworkStream):
    """A connection that reads within a budget, until the run is cut off."""

    def __init__(self, connection: socket.socket, budget: Budget) -> None:
        self._connection = connection
        self._budget = budget
        try:
            CONNECTIONS.add(connection)
        except Interrupted:
            self.close()
            raise

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has come; raises `LimitExceeded` or `Interrupted` beside httpcore's own."""
        CONNECTIONS.check()
        wait_s = self._budget.timeout(timeout)
        try:
            self._connection.settimeout(wait_s)  # fails where another thread closed it
            data = self._connection.recv(max_bytes)
        except TimeoutError as error:
            # The shorter of two times is over: the budget's raises under its own name.
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
        """Send bytes; raises `Interrupted` beside httpcore's own."""
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
        """Encrypt the connection; raises `Interrupted` beside httpcore's own."""
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
        """Return what is known of the connection: `socket` and `ssl_object`, as httpcore asks."""
        if info == "socket":
            return self._connection
        if info == "ssl_object" and hasattr(self._connection, "selected_alpn_protocol"):
            return self._connection
        return None


class BoundedBackend(httpcore.NetworkBackend):
    """Connects for the request whose budget this thread has set."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def turn_to(self, budget: Budget) -> None:
        """Take the next connection that this thread opens for a request with this budget."""
        self._thread.budget = budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002 - httpcore's interface
        socket_options: Iterable[SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Connect; raises `Interrupted` beside httpcore's own."""
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
