"""A server that keeps connections and closes idle ones, as vLLM's does after five seconds.

Use `IdleClosingServer` to see whether a client sends a request over a connection that is being
closed. The server decides to close a connection that was idle for `idle_s` seconds and does it up
to `jitter_s` seconds later. A request that arrives in between is never read: its client meets the
end of the connection without a byte of an answer. uvicorn has the same race in a shorter time
(`--timeout-keep-alive`, 5 s; vLLM sets it from VLLM_HTTP_TIMEOUT_KEEP_ALIVE, 5 s as well).
"""

from __future__ import annotations

import json
import random
import socket
import threading

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.descriptors import readable
from servers.raw import received

MESSAGE = {"role": "assistant", "content": "x"}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
CHAT = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [CHOICE]}
WHOLE = json.dumps(CHAT).encode()
EVENT = {"choices": [{"index": 0, "text": "x"}]}
STREAM = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n".encode()


class IdleClosingServer:
    """Answers any request at once; `requests` and `connections` count what came."""

    def __init__(self, idle_s: float, jitter_s: float) -> None:
        self.idle_s, self.jitter_s = idle_s, jitter_s
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self.requests = self.connections = self.lost = 0
        """`lost`: requests that came over a connection that was being closed."""
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._random = random.Random(5)  # noqa: S311 - a jitter

    @property
    def endpoint(self) -> Endpoint:
        """Where the server answers, for a model named `alias`."""
        return Endpoint(f"http://127.0.0.1:{self.port}/v1", "alias")

    def serve_forever(self, _: float = 0.0, /) -> None:
        while True:
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            jitter_s = self._random.uniform(0.0, self.jitter_s)
        with connection:
            try:
                while data := received(connection):
                    with self._lock:
                        self.requests += 1
                    connection.sendall(answer_to(data))
                    if b"\r\nconnection: close\r\n" in data.lower():
                        return
                    if not readable([connection.fileno()], self.idle_s):
                        self._close_late(connection, jitter_s)
                        return
            except OSError:  # the client left
                return

    def _close_late(self, connection: socket.socket, jitter_s: float) -> None:
        self.closing.wait(jitter_s)
        came = readable([connection.fileno()], 0)
        if came and connection.recv(1, socket.MSG_PEEK):
            with self._lock:
                self.lost += 1

    def shutdown(self) -> None:
        self.closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)

    def server_close(self) -> None:
        self._socket.close()


def answer_to(data: bytes) -> bytes:
    """Return a stream for a request of one, else the shortest whole chat."""
    stream = b'"stream": true' in data or b'"stream":true' in data
    body = STREAM if stream else WHOLE
    kind = "text/event-stream" if stream else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
