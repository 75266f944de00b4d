"""A server that answers each request as a test says: JSON, or the events of a stream."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Asked = list[tuple[str, dict[str, Any]]]
    """Paths and bodies, in order."""


@contextlib.contextmanager
def answering(
    reply: Callable[[str, dict[str, Any]], tuple[int, Any]],
) -> Iterator[tuple[Endpoint, Asked]]:
    """Serve while the block lasts; `reply` gives status and JSON, which is a stream if a list."""
    asked: Asked = []

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # head and body are written apart

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            status, said = reply(self.path, body)
            kind, data = "application/json", json.dumps(said).encode()
            if isinstance(said, list):
                events = [f"data: {json.dumps(entry)}\n\n" for entry in said]
                kind, data = "text/event-stream", "".join([*events, "data: [DONE]\n\n"]).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "alias"), asked
        server.shutdown()
