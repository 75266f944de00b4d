"""A listener on this machine that detects whether a server fetches a picture from it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Listener:
    """Serves one picture on a loopback port while its `with` block lasts."""

    def __init__(self, picture: bytes) -> None:
        paths = self.paths = list[str]()
        """The paths that were fetched."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(picture)))
                self.end_headers()
                self.wfile.write(picture)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The picture's URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/picture.png"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
