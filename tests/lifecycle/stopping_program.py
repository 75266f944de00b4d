"""A server that streams slowly, and ends in the given way on SIGTERM: `program.py WAY`.

It prints its port. Ways: `drains`, `errors`, `cuts`, `hangs`, and `lies`, which drains and reports
itself healthy while it refuses.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAY = sys.argv[1]
EVENTS = 40
TOLD = threading.Event()
OPEN = [0]


class Handler(BaseHTTPRequestHandler):
    """Answers health checks and chats."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def status(self, status: int) -> None:
        """Answer without a body."""
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Answer with the health."""
        self.status(503 if TOLD.is_set() and WAY != "lies" else 200)

    def do_POST(self) -> None:
        """Stream, or answer whole."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if TOLD.is_set() or not body.get("stream"):
            self.status(503 if TOLD.is_set() else 200)
            return
        OPEN[0] += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(EVENTS):
            finish = "stop" if number == EVENTS - 1 else None
            choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": finish}
            self.event(json.dumps({"choices": [choice]}))
            time.sleep(0.02)
            if TOLD.is_set() and WAY == "hangs":
                time.sleep(60)
            if TOLD.is_set() and WAY == "errors":
                self.event('{"error": {"message": "shutting down", "code": 503}}')
                break
            if TOLD.is_set() and WAY == "cuts":
                break
        else:
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        OPEN[0] -= 1

    def event(self, data: str) -> None:
        """Send an event in a chunk by itself."""
        line = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()


def stop() -> None:
    """End once the streams have."""
    TOLD.wait()
    while OPEN[0]:
        time.sleep(0.01)
    time.sleep(0.5)
    os._exit(0)


signal.signal(signal.SIGTERM, lambda *_: TOLD.set())
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=stop, daemon=True).start()
print(server.server_address[1], flush=True)
server.serve_forever(poll_interval=0.05)
