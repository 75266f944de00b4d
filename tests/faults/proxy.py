"""A proxy before a real server that lets one fault alter what passes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from faults.exchange import EVENTS, Exchange
from faults.upstream import TIMEOUT_S
from pytest_vllm_gates.descriptors import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.upstream import Upstream

# Headers of a request that are handed on, besides the key's and those of its body.
ASKED = (
    "Access-Control-Request-Headers", "Access-Control-Request-Method", "Content-Encoding",
    "Origin", "X-Api-Key", "X-Request-Id",
)  # fmt: skip
LONG_EVENTS = 100
LONG_STREAM_S = 0.2


class Proxy:
    """Serves on a loopback port while its `with` block lasts.

    `request` may change an exchange before it is passed on, `reply` the answer to it.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        request: Callable[[Exchange], None] | None = None,
        reply: Callable[[Exchange], None] | None = None,
        port: int = 0,
    ) -> None:
        kept = self._kept = set[http.client.HTTPConnection]()
        asking = set[Exchange]()

        class Handler(_Handler):
            def exchanged(self, exchange: Exchange) -> None:
                if request:
                    request(exchange)
                if exchange.endless:
                    self.pass_through(exchange, upstream.send(exchange), kept)
                    return
                exchange.unanswered = lambda: len(asking)
                asking.add(exchange)
                try:
                    upstream.answer(exchange)
                    if reply:
                        reply(exchange)
                finally:
                    asking.discard(exchange)

        self._server = _Listener(("127.0.0.1", port), Handler)

    @property
    def base_url(self) -> str:
        """The address at which it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in [*self._kept]:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Answer until the end."""
        self._server.serve_forever(poll_interval=0.02)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # many come at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written separately

    def exchanged(self, exchange: Exchange) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_OPTIONS(self) -> None:
        self._pass_on()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Log nothing."""

    def pass_through(
        self,
        exchange: Exchange,
        connection: http.client.HTTPConnection,
        kept: set[http.client.HTTPConnection],
    ) -> None:
        """Hand on an answer as it comes, until it ends or the client is gone."""
        self.close_connection = True
        kept.add(connection)
        client, server = self.connection, connection.sock
        watched = {client.fileno(): client, server.fileno(): server}
        while True:
            ready = [watched[handle] for handle in readable(watched, TIMEOUT_S)]
            gone = client in ready and _is_gone(client)
            data = server.recv(2**16) if server in ready else b""
            if gone:
                del watched[client.fileno()]
            if (gone and not exchange.kept) or (server in ready and not data) or not ready:
                break
            with contextlib.suppress(OSError):
                client.sendall(data)
        kept.discard(connection)
        connection.close()

    def _pass_on(self) -> None:
        authorization = self.headers.get("Authorization", "")
        key = authorization.removeprefix("Bearer ") or None
        headers = {name: self.headers[name] for name in ASKED if name in self.headers}
        if authorization and not authorization.startswith("Bearer "):
            key, headers["Authorization"] = None, authorization
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body, raw = _parsed(data)
        kind = self.headers.get("Content-Type")
        exchange = Exchange(
            self.command,
            self.path,
            body,
            key,
            raw=raw,
            size=len(data),
            content_type=kind,
            headers=headers,
        )
        self.exchanged(exchange)
        if exchange.endless:
            return
        if exchange.cut_after == 0:
            self.close_connection = True
            return
        if exchange.text is not None:
            self._send(exchange, [exchange.text])
        elif exchange.kind == EVENTS:
            self._send(exchange, list(_framed(exchange)))
        else:
            self._send(exchange, [json.dumps(event) for event in exchange.events])

    def _send(self, exchange: Exchange, pieces: list[str]) -> None:
        """Send an answer at once; a long stream piece by piece, as one that is being made."""
        datas = [piece.encode("utf-8", "surrogateescape") for piece in pieces]
        pause_s = exchange.pause_s
        if pause_s is None and len(datas) > LONG_EVENTS:
            pause_s = _evenly
        self.send_response(exchange.status)
        if kind := exchange.shown_kind or exchange.kind:
            self.send_header("Content-Type", kind)
        for name, value in exchange.shown_headers.items():
            self.send_header(name, value)
        if pause_s is None:
            self.send_header("Content-Length", str(sum(map(len, datas))))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        written = datas[: exchange.cut_after]
        if pause_s is None:
            written = [b"".join(written)]
        if self.command == "HEAD":
            written = []
        for number, data in enumerate(written):
            if pause_s is not None:
                time.sleep(pause_s(number, len(datas)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)
        self.close_connection = self.close_connection or exchange.cut_after is not None


def _framed(exchange: Exchange) -> Iterator[str]:
    """Yield the events of a stream as they are sent."""
    for event in exchange.events:
        name = f"event: {event.get('type')}\n" if exchange.named else ""
        yield name + exchange.frame(json.dumps(event, ensure_ascii=False))
    if exchange.done:
        yield exchange.frame("[DONE]")


def _evenly(_: int, count: int) -> float:
    return LONG_STREAM_S / count


def _is_gone(client: socket.socket) -> bool:
    """Return whether a socket that has something to read has only its end."""
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _parsed(data: bytes) -> tuple[dict[str, Any], bytes | None]:
    """Return a body's JSON object, or an empty one and what is there in its place."""
    if not data:
        return {}, None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return {}, data
    return (body, None) if isinstance(body, dict) else ({}, data)
