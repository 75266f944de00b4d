"""TLS before a server of the tests, as a gateway has it.

Use `EncryptedServer` to reach any server that speaks plain HTTP over TLS; it passes bytes on as
they come, each piece in a separate record.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

READ_BYTES = 2**14
LIMIT_S = 60.0


class EncryptedServer:
    """Passes on what comes over TLS to a port of this machine."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        """`port`: of the server behind it."""
        self._context, self._behind = context, port
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self.protocols: list[str | None] = []
        """What the client and this server agreed to speak, for each connection (ALPN)."""

    def serve_forever(self, _: float = 0.0, /) -> None:
        while True:
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(LIMIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), connection:
            client = self._context.wrap_socket(connection, server_side=True)
            self.protocols.append(client.selected_alpn_protocol())
            behind = socket.create_connection(("127.0.0.1", self._behind), LIMIT_S)
            with client, behind:
                sending = threading.Thread(target=_pass_on, args=(client.recv, behind), daemon=True)
                sending.start()
                _pass_on(behind.recv, client)
                with contextlib.suppress(OSError):
                    client.unwrap()

    def shutdown(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def server_close(self) -> None:
        self._socket.close()


def _pass_on(read: Callable[[int], bytes], target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := read(READ_BYTES):
            target.sendall(data)
