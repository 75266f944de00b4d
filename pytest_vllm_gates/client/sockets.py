"""Sockets of requests that Ctrl-C can end at any moment.

Ctrl-C works while a name is looked up, a connection is made or encrypted, and one is read. Shutting
a socket down wakes the thread that waits on it. A separate thread looks names up, because nothing
wakes getaddrinfo(3), and it has no timeout.
"""

from __future__ import annotations

import contextlib
import math
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.bounds import Interrupted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence

POLL_S = 0.1
PLACE = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class Connections:
    """All sockets of this process's requests, so that Ctrl-C can end them at once.

    `end` may be called from a signal handler: it takes no lock.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._ended = False

    def begin(self) -> None:
        """Allow requests."""
        self._ended = False

    def end(self) -> None:
        """Give up every open request, and send none until `begin`."""
        self._ended = True
        for connection in list(self._sockets.values()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raise `Interrupted` after `end`."""
        if self._ended:
            raise Interrupted("the run was interrupted")

    def add(self, connection: socket.socket) -> None:
        """Remember a socket while a thread may wait on it; raises `Interrupted` after `end`."""
        self._sockets[id(connection)] = connection
        self.check()

    def remove(self, connection: socket.socket) -> None:
        """Forget a socket."""
        self._sockets.pop(id(connection), None)

    @contextlib.contextmanager
    def waiting(self, connection: socket.socket) -> Iterator[None]:
        """Remember a socket while the block lasts; an error that `end` causes is `Interrupted`."""
        try:
            self.add(connection)
            yield
        except OSError:
            self.check()
            raise
        finally:
            self.remove(connection)


CONNECTIONS = Connections()


def connect(host: str, port: int, timeout_s: float | None = None) -> socket.socket:
    """Return a connection to the first of the host's addresses that accepts one.

    Raises `OSError` as `socket.create_connection` does, `TimeoutError` after `timeout_s` for the
    name and once more for each address, and `Interrupted`.
    """
    failed: OSError | None = None
    for family, kind, protocol, _, address in look_up(host, port, timeout_s):
        connection = socket.socket(family, kind, protocol)
        try:
            with CONNECTIONS.waiting(connection):
                connection.settimeout(timeout_s)
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                CONNECTIONS.check()  # after shutdown(2) a waiting connect(2) succeeds
        except OSError as error:
            connection.close()
            failed = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failed or OSError(f"{host} has no address")


def encrypt(
    connection: socket.socket,
    context: ssl.SSLContext,
    host: str | None = None,
    timeout_s: float | None = None,
) -> ssl.SSLSocket:
    """Return the connection with TLS; raises `OSError` and `Interrupted`.

    The given socket must not be used afterwards.
    """
    connection.settimeout(timeout_s)
    # wrap_socket detaches the descriptor from the socket at once: another one wakes its thread.
    with connection.dup() as waker, CONNECTIONS.waiting(waker):
        return context.wrap_socket(connection, server_hostname=host)


def look_up(host: str, port: int, timeout_s: float | None = None) -> Sequence[PLACE]:
    """Return the addresses of a host, as `socket.getaddrinfo`; raises `TimeoutError` as well."""
    CONNECTIONS.check()
    with contextlib.suppress(OSError, UnicodeError):  # an address needs no lookup
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    answers: queue.SimpleQueue[Sequence[PLACE] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)
        except UnicodeError as error:  # a label of more than 63 characters
            answers.put(OSError(f"{host!r} is not a host name: {error}"))

    threading.Thread(target=ask, name=f"look up {host}", daemon=True).start()
    deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
    while True:
        try:
            answer = answers.get(timeout=POLL_S)
        except queue.Empty:
            CONNECTIONS.check()
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"the address of {host} was not found in {timeout_s:g} s"
                ) from None
            continue
        if isinstance(answer, OSError):
            raise answer
        return answer
