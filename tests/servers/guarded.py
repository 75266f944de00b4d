"""A `stub` server that applies vLLM's `--middleware` flags, as a program of a `python` lane.

    python guarded.py --port PORT --served-model-name NAME… --middleware MODULE.CLASS …

Like vLLM it wants the key below `/v1` by itself, and answers its other routes to anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))

from servers import stub

OPEN = ("/version", "/metrics", "/openapi.json", "/load", "/invocations")
METRICS = b"# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 3.0\n"


class GuardedHandler(stub.Handler):
    """Sends each request through the middleware, and what that lets pass to the stub."""

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        if self.passes() and self.path == "/metrics":
            self.send_response(200)
            self.send_header("Content-Length", str(len(METRICS)))
            self.end_headers()
            self.wfile.write(METRICS)
        elif self.path in OPEN and self.passes():
            self.reply({"version": "0.32.0"})
        elif self.passes():
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        if self.path in OPEN and self.passes():
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.reply({"answered": "without vLLM's own check"})
        elif self.passes():
            super().do_POST()

    def do_OPTIONS(self) -> None:  # noqa: N802 - the library's name
        if self.passes():
            self.reply({})

    def passes(self) -> bool:
        """Return whether the middleware lets the request pass; what it answers is sent."""
        names = [sys.argv[at + 1] for at, word in enumerate(sys.argv) if word == "--middleware"]
        return all(self.passes_through(name) for name in names)

    def passes_through(self, name: str) -> bool:
        module, _, attribute = name.rpartition(".")
        passed: list[bool] = []

        async def app(*_: object) -> None:
            passed.append(True)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.close_connection = True
                self.send_response(message["status"])
                self.send_header("Connection", "close")
                for head, value in message["headers"]:
                    self.send_header(head.decode(), value.decode())
                self.end_headers()
            else:
                self.wfile.write(message["body"])

        headers = [(key.lower().encode(), value.encode()) for key, value in self.headers.items()]
        scope = {"type": "http", "path": self.path, "method": self.command, "headers": headers}
        middleware = getattr(importlib.import_module(module), attribute)
        asyncio.run(middleware(app)(scope, receive, send))
        return bool(passed)


def main() -> None:
    """Serve until the process is ended."""
    flags = sys.argv[1:]
    at = flags.index("--served-model-name") + 1
    names = [*flags[at : next(i for i in range(at, len(flags)) if flags[i].startswith("--"))]]
    port = int(flags[flags.index("--port") + 1])
    print("a guarded fake boots", os.environ.get("FAKE", ""), flush=True)
    server = stub.StubServer(
        os.environ.get("FAKE", ""), key=os.environ["VLLM_API_KEY"], names=names, port=port
    )
    server.RequestHandlerClass = GuardedHandler
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(0.01)


if __name__ == "__main__":
    main()
