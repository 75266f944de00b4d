"""A fake vLLM server in development mode that sleeps, pauses and reads its weights again.

Use `HoldingServer(WAY)` if a test needs a suspended server but not vLLM. Ways: `right`,
`forgets` (it answers differently once it was suspended), `early` (it answers while suspended),
`old` (it has none of the routes), `stuck` (it cannot be resumed), `blank` (it cannot read its
weights again).
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKENS = 40
TOKEN_S = 0.05
CHAT = "/v1/chat/completions"


class HoldingHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: HoldingServer
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def reply(self, value: Any, status: int = 200) -> None:
        """Answer with JSON."""
        data = json.dumps(value).encode() if not isinstance(value, str) else value.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """Answer with health, state and metrics."""
        server = self.server
        states = {"/is_sleeping": "is_sleeping", "/is_paused": "is_paused"}
        if self.path == "/metrics":
            self.reply(f"vllm:num_requests_running {server.running}\n")
        elif self.path in states:
            self.reply({states[self.path]: not server.goes.is_set()})
        else:
            self.reply({})

    def do_POST(self) -> None:
        """Suspend, resume, or answer."""
        server = self.server
        url = urlsplit(self.path)
        text = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if url.path == CHAT:
            self.chat(json.loads(text))
        elif server.way == "old":
            self.reply({"detail": "Not Found"}, 404)
        elif url.path in {"/sleep", "/pause"}:
            server.mode = parse_qs(url.query).get("mode", ["abort"])[0]
            while server.mode == "wait" and server.running:
                time.sleep(TOKEN_S)
            server.was_held = True
            server.goes.clear()
            self.reply({})
        elif url.path == "/collective_rpc":
            self.reply({}, 500 if server.way == "blank" else 200)
        elif server.way == "stuck":
            server.goes.set()
            self.reply({"error": "no"}, 500)
        else:
            server.goes.set()
            self.reply({})

    def chat(self, body: dict[str, Any]) -> None:
        """Answer whole, or stream a token at a time."""
        server = self.server
        if server.way != "early":
            server.goes.wait()
        last = "Rome." if server.way == "forgets" and server.was_held else "Paris."
        if not body.get("stream"):
            message = {"role": "assistant", "content": last}
            self.reply({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
            return
        self.send_response(200)
        self.end_headers()
        server.running += 1
        for number in range(TOKENS):
            time.sleep(TOKEN_S)
            aborted = not server.goes.is_set() and server.mode == "abort"
            server.goes.wait()
            finish = "abort" if aborted else "length" if number == TOKENS - 1 else None
            choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": finish}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            if aborted:
                break
        server.running -= 1
        self.wfile.write(b"data: [DONE]\n\n")


class HoldingServer(ThreadingHTTPServer):
    """Serves in one of the ways."""

    daemon_threads = True

    def __init__(self, way: str) -> None:
        super().__init__(("127.0.0.1", 0), HoldingHandler)
        self.way = way
        self.mode = "abort"
        self.running = 0
        self.was_held = False
        self.goes = threading.Event()
        self.goes.set()

    @property
    def base_url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_port}/v1"
