"""TLS before a server of the tests, as a gateway has it.

Use `EncryptedServer` to reach any server that speaks plain HTTP over TLS; it passes bytes on as
they come, each piece in a separate record.
"""

from __future__ import annotations

import asyncio
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
    """Passes on what comes over TLS to a port of this machine.

    One thread does it all: a TLS connection that two threads use at once may crash the process.
    """

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        """`port`: of the server behind it."""
        self._context, self._behind = context, port
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self.protocols: list[str | None] = []
        """What the client and this server agreed to speak, for each connection (ALPN)."""
        self._end: Callable[[], object] = lambda: None
        self._serving, self._ended = threading.Event(), threading.Event()

    def serve_forever(self, _: float = 0.0, /) -> None:
        asyncio.run(self._serve())
        self._ended.set()

    async def _serve(self) -> None:
        loop, wanted = asyncio.get_running_loop(), asyncio.Event()
        self._end = lambda: loop.call_soon_threadsafe(wanted.set)
        self._serving.set()
        async with await asyncio.start_server(
            self._connected, sock=self._socket, ssl=self._context
        ):
            await wanted.wait()

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.protocols.append(client.get_extra_info("ssl_object").selected_alpn_protocol())
        with contextlib.suppress(OSError):
            reader_behind, behind = await asyncio.open_connection("127.0.0.1", self._behind)
            sending = asyncio.create_task(_pass_on(reader, behind))
            await _pass_on(reader_behind, client)
            sending.cancel()
            behind.close()
            client.close()
            await client.wait_closed()

    def shutdown(self) -> None:
        self._serving.wait(LIMIT_S)
        self._end()

    def server_close(self) -> None:
        self._ended.wait(LIMIT_S)
        self._socket.close()


async def _pass_on(reader: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            target.write(data)
            await target.drain()
