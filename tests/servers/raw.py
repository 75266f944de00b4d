"""A server at the sockets: each connection is answered as a test says, with whatever bytes."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Self

from pytest_vllm_gates.load.types import PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n"


class Server:
    """Answers each connection in a thread of its own, once a whole request has come."""

    def __init__(self, serve: Callable[[socket.socket, bytes], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += client.recv(2**16)
        head = bytes(data).partition(b"\r\n\r\n")[0]
        size = len(head) + 4 + int(head.rpartition(b"Content-Length: ")[2])
        while len(data) < size:
            data += client.recv(2**16)
        self._serve(client, bytes(data))
        with self._lock:
            self.at_once -= 1
        client.close()

    def close(self) -> None:
        # Whoever waits for a connection keeps the port open, until it is woken.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def requests(count: int, every_s: float | None = None, body: bytes = b"{}") -> list[PlannedRequest]:
    return [
        PlannedRequest(str(number), "/v1/x", body, None if every_s is None else number * every_s)
        for number in range(count)
    ]


def plain(client: socket.socket, _: bytes) -> None:
    client.sendall(ANSWER)
