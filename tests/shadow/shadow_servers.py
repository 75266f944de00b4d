"""Servers behind a shadow, and a shadow as the process that a user starts."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

WAIT_S = 120
"""A busy machine takes long to start a process."""
NO_CONTENT = 204
CHAT = "/v1/chat/completions"
MAIN = "import sys; from pytest_vllm_gates.cli.main import main; sys.exit(main(sys.argv[1:]))"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
WORDS = ("It", " is", " cold", " today", " in", " Oslo", ".")


class Chats(ThreadingHTTPServer):
    """Answers chats, whole and streamed, as a correct server does; a mode adds a fault."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, mode: str = "", *, break_every: int = 0) -> None:
        """`mode` is a fault; with `break_every` only each n-th answer has it."""
        super().__init__(("127.0.0.1", 0), _ChatHandler)
        self.mode = mode
        self.break_every = break_every
        self.seen: list[tuple[str, str, list[tuple[str, str]], bytes]] = []
        """Method, path, headers and body of every request."""
        self.chats = 0
        """How many of them were chats."""
        self.tokenizes = True
        """Whether it has the route `/tokenize`; a word is a token."""
        self.lock = threading.Lock()
        self.hung_up = threading.Event()
        """Set when a client of a stream without end has gone."""
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about clients that are gone."""

    def shutdown(self) -> None:
        self.closing.set()
        super().shutdown()


class _ChatHandler(BaseHTTPRequestHandler):
    server: Chats
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.seen.append((self.command, self.path, self.headers.items(), data))
            self.server.chats += self.path.partition("?")[0] == CHAT
            number = self.server.chats
        every = self.server.break_every
        mode = self.server.mode if not every or number % every == 0 else ""
        path = self.path.partition("?")[0]
        if path.startswith("/status/"):
            self._whole(int(path.rpartition("/")[2]), b'{"error": {"message": "no"}}')
        elif path == "/v1/models":
            self._whole(200, b'{"data": []}')
        elif path == "/garbage":
            self.wfile.write(b"the answer of another client\r\n\r\n")
            self.close_connection = True
        elif path == "/cut":
            self._head(200, "text/event-stream")
            self._chunk(b"data: {}\n\n")
            self.close_connection = True
        elif path == "/endless":
            self._endless()
        elif path == "/tokenize" and self.server.tokenizes:
            words = json.loads(data)["prompt"].split(" ")
            tokens = [zlib.crc32(word.encode()) for word in words]
            self._whole(200, json.dumps({"count": len(tokens), "tokens": tokens}).encode())
        elif path == "/tokenize":
            self._whole(404, b'{"error": {"message": "no"}}')
        elif path == CHAT:
            self._chat(json.loads(data), mode)
        else:
            self._whole(
                200, b"".join((self.command.encode(), b" ", self.path.encode(), b"\n", data))
            )

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_GET

    def _chat(self, body: Mapping[str, Any], mode: str) -> None:
        if mode == "hangs":
            self.server.closing.wait(WAIT_S)
            self.close_connection = True
        elif mode == "crashes":
            self.close_connection = True
        elif mode.startswith("status "):
            self._whole(int(mode.removeprefix("status ")), b'{"error": {"message": "no"}}')
        elif mode == "error":
            self._whole(500, b'{"error": {"message": "the engine is dead"}}')
        elif mode == "floods":
            self._endless()
        elif mode == "slow":
            time.sleep(0.3)
            self._answer(body, list(WORDS))
        elif mode == "leaks":
            self._answer(body, [*WORDS[:3], "<|im_end|>", *WORDS[3:]])
        else:
            self._answer(body, list(WORDS))

    def _answer(self, body: Mapping[str, Any], words: Sequence[str]) -> None:
        usage = {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 10}
        head = {"id": "chat-1", "created": 0, "model": "m"}
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": "stop",
                      "message": {"role": "assistant", "content": "".join(words)}}  # fmt: skip
            answer = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._whole(200, json.dumps(answer).encode())
            return
        self._head(200, "text/event-stream")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word} for word in words]
        for delta in [*deltas, None]:
            choice = {"index": 0, "delta": delta or {}, "finish_reason": None if delta else "stop"}
            self._event({**head, "object": "chat.completion.chunk", "choices": [choice]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, event: Mapping[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _endless(self) -> None:
        self._head(200, "text/event-stream")
        try:
            while not self.server.closing.is_set():
                self._chunk(b"data: " + b"x" * 65536 + b"\n\n")
                time.sleep(0.001)
        except OSError:
            self.server.hung_up.set()
        self.close_connection = True

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status, "As It Is")
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Twice", "one")
        self.send_header("x-twice", "two")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, status: int, data: bytes) -> None:
        self.send_response(status, "As It Is")
        self.send_header("Content-Type", "application/json")
        if status != NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Twice", "one")
        self.send_header("x-twice", "two")
        self.end_headers()
        if self.command != "HEAD" and status != NO_CONTENT:
            self.wfile.write(data)


class ShadowProcess:
    """A shadow that runs."""

    def __init__(self, process: subprocess.Popen[str], url: str, verdict_url: str) -> None:
        self.process = process
        self.url = url
        self.verdict_url = verdict_url
        self.printed = ""

    @property
    def port(self) -> int:
        """The URL for clients."""
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def document(self) -> dict[str, Any]:
        """Return the document of this moment."""
        with urllib.request.urlopen(self.verdict_url, timeout=WAIT_S) as reply:
            document: dict[str, Any] = json.load(reply)
        return document

    def until_pairs(self, pairs: int) -> dict[str, Any]:
        """Return the document once so many pairs are judged or left out."""
        return self.until(lambda document: judged(document) >= pairs)

    def until(self, reached: Any) -> dict[str, Any]:
        """Return the document once `reached` is true of it."""
        end = time.monotonic() + WAIT_S
        while not reached(document := self.document()):
            assert time.monotonic() < end, document["traffic"]
            time.sleep(0.05)
        return document

    def end(self) -> int:
        """End it with SIGTERM, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.printed = self.process.communicate(timeout=WAIT_S)[0]
        return self.process.returncode


def judged(document: Mapping[str, Any]) -> int:
    """Return how many pairs are judged or left out."""
    traffic = document["traffic"]
    return int(document["pairs"] + sum(traffic["not_judged"].values()))


@contextlib.contextmanager
def shadow(
    stable: str,
    canary: str,
    folder: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    errors: IO[str] | None = None,
) -> Iterator[ShadowProcess]:
    """Run `vllm-gates shadow` before a stable server; its standard error goes to `errors`."""
    command = [
        sys.executable, "-c", MAIN, "shadow", "--stable", stable, "--canary", canary,
        "--listen", "0", "--control", "0", "--out", str(folder / "incidents"), *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert process.stdout
    try:
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines[0].startswith("clients: "), lines
        yield ShadowProcess(process, *(line.split()[1] for line in lines))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def chat(port: int, *, stream: bool = False, named: bool = True, **more: Any) -> tuple[int, bytes]:
    """Send one chat; return status and body."""
    body = {"model": "m", "messages": [{"role": "user", "content": "How is it?"}],
            "stream": stream, "temperature": 0, **more}  # fmt: skip
    if stream:
        body["stream_options"] = {"include_usage": True}
    status, _, data = ask(port, "POST", CHAT, json.dumps(body).encode(), named=named)
    return status, data


def raw(port: int, data: bytes) -> bytes:
    """Send bytes as they are; return all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        pieces = []
        while piece := connection.recv(2**16):
            pieces.append(piece)
    return b"".join(pieces)


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Any = None,
    *,
    named: bool = True,
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send one request; return status, headers and body as they came.

    `named`: the answer has to have the reason of `Chats`.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body, sent)
        reply = connection.getresponse()
        if named and reply.status < 500:
            assert reply.reason == "As It Is"
        return reply.status, reply.getheaders(), reply.read()
    finally:
        connection.close()
