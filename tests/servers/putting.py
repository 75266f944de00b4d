"""An HTTP server that keeps what is PUT to it, as raw repositories of artifacts do."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class PuttingServer:
    """Serves from 127.0.0.1 while it is entered; `kept` has the objects by their paths."""

    def __init__(self, token: str = "") -> None:
        self.kept: dict[str, bytes] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self._allowed():
                    server.kept[self.path] = data
                    self._answer(201, b"")

            def do_GET(self) -> None:
                if self._allowed():
                    data = server.kept.get(self.path)
                    self._answer(404 if data is None else 200, data or b"")

            do_HEAD = do_GET  # noqa: N815 - its name there

            def _allowed(self) -> bool:
                if token and self.headers.get("authorization") != f"Bearer {token}":
                    self._answer(401, b"")
                    return False
                return True

            def _answer(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/team"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
