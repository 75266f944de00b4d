"""Servers at the socket, for answers that are not HTTP or that have to come in time.

Use `RawServer` to decide on every byte of an answer and when it is sent; with no function it
holds a port and never answers. Use `TimetableServer` to time streams: it streams completions or
chats to many clients step by step, from a process of its own, and knows when it sent each chunk.
That process can also be started by hand; it prints its port, then a line of JSON a round:

    python tests/servers/raw.py '{"streams": 64, "every_s": 0.025}'

For answers in HTTP whose time does not matter use `scripted`.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import queue
import random
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vllm_gates.client.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 02:10:34 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
READ_BYTES = 2**18
LIMIT_S = 120.0
MODEL = "scripted"
TOKEN_ID = 1234
CHAT_PROMPT_TOKENS = 7


def send_answer(connection: socket.socket, _: bytes) -> None:
    """Answer a request with the shortest whole stream."""
    connection.sendall(ANSWER)


class RawServer:
    """Calls `answer` with each connection and the request that came over it, in a thread each."""

    def __init__(
        self, answer: Callable[[socket.socket, bytes], object] | None, *, backlog: int = 64
    ) -> None:
        """`answer`: None to accept no connection; the kernel holds `backlog` of them then."""
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port: int = self._socket.getsockname()[1]
        self.requests_seen: list[bytes] = []
        self.at_once = self.most_at_once = 0
        self.closing = threading.Event()
        """Set when the server ends; an answer that hangs waits for it."""
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> Endpoint:
        """Where the server answers, for a model named `alias`."""
        return Endpoint(f"http://127.0.0.1:{self.port}/v1", "alias")

    def serve_forever(self, _: float = 0.0, /) -> None:
        while self._answer:
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        assert self._answer
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        if data := received(connection):
            self.requests_seen.append(data)
            self._answer(connection, data)
        with self._lock:
            self.at_once -= 1
        connection.close()

    def shutdown(self) -> None:
        self.closing.set()
        # A thread in `accept` keeps the port open until it is woken.
        self._socket.shutdown(socket.SHUT_RDWR)

    def server_close(self) -> None:
        self._socket.close()


def received(connection: socket.socket) -> bytes:
    """Return a whole request; nothing where the client closes before its end."""
    data = bytearray()
    size: float = math.inf
    while len(data) < size:
        received = connection.recv(2**16)
        if not received:
            return b""
        data += received
        if size == math.inf and b"\r\n\r\n" in data:
            head = bytes(data).partition(b"\r\n\r\n")[0]
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            size = len(head) + 4 + int(length[1] if length else 0)
    return bytes(data)


@dataclass(frozen=True)
class Timetable:
    """What is streamed when, the same in every round; all streams take each step together."""

    streams: int
    """A round begins when so many completions or chats were requested."""
    every_s: float
    """Seconds from one step to the next."""
    fewest_tokens: int = 1
    """A step brings each stream one chunk of this many tokens or more."""
    most_tokens: int = 1
    stall_share: float = 0.0
    """The share of the steps that come later."""
    stall_s: float = 0.0
    """How many seconds later at most."""

    def steps(self, tokens: int) -> Iterator[tuple[float, int]]:
        """Yield each step's seconds from the step before, and its tokens, until all are sent."""
        chance = random.Random("steps")  # noqa: S311 - it hides nothing
        while tokens > 0:
            stalls = chance.random() < self.stall_share
            wait_s = self.every_s + (chance.uniform(0.0, self.stall_s) if stalls else 0.0)
            count = min(tokens, chance.randint(self.fewest_tokens, self.most_tokens))
            yield wait_s, count
            tokens -= count


@dataclass(frozen=True)
class Sent:
    """One step as it went out: its tokens, and the Unix time of each stream's chunk."""

    tokens: int
    times: list[float]


def gaps(sent: list[Sent]) -> list[tuple[float, int]]:
    """Return the seconds between the chunks of each stream, with the tokens of the later one."""
    return [
        (later - earlier, after.tokens)
        for before, after in itertools.pairwise(sent)
        for earlier, later in zip(before.times, after.times, strict=True)
    ]


class TimetableServer:
    """A process that streams to a timetable, round after round."""

    def __init__(self, timetable: Timetable) -> None:
        argv = [sys.executable, __file__, json.dumps(asdict(timetable))]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self._lines = self._process.stdout
        self._rounds: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.port = int(self._lines.readline())

    @property
    def endpoint(self) -> Endpoint:
        """Where the process answers, for a model named `scripted`."""
        return Endpoint(f"http://127.0.0.1:{self.port}/v1", MODEL)

    def sent(self) -> list[Sent]:
        """Return the steps of the first round that was not returned before; wait for its end."""
        return [Sent(*step) for step in json.loads(self._rounds.get(timeout=LIMIT_S))]

    def serve_forever(self, _: float = 0.0, /) -> None:
        """Read the rounds: the process would wait at a pipe that is full."""
        with self._lines:
            for line in self._lines:
                self._rounds.put(line)

    def shutdown(self) -> None:
        self._process.kill()

    def server_close(self) -> None:
        self._process.wait()


class StreamKind(NamedTuple):
    """What the chunks of a stream hold; streams of one kind get the same bytes."""

    chats: bool
    usage: bool
    token_ids: bool


class _Client:
    """A connection, and the completion or chat that was requested over it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.request: dict[str, Any] = {}
        self.chats = False
        self._data = bytearray()
        self._closes = False

    def take(self, data: bytes) -> bool:
        """Take what was received; return whether the request for a stream is whole."""
        self._data += data
        head, separator, body = bytes(self._data).partition(b"\r\n\r\n")
        fields = head.lower()
        size = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not separator or len(body) < size:
            return False
        self._data.clear()
        self.chats = head.startswith(f"POST {CHAT} ".encode())
        if not self.chats and not head.startswith(f"POST {COMPLETION} ".encode()):
            self.connection.sendall(NOT_FOUND)  # peers look for metrics and tokenizers
            return False
        self.request = json.loads(body)
        self._closes = b"connection: close" in fields
        return True

    @property
    def kind(self) -> StreamKind:
        usage = self.request.get("stream_options", {}).get("continuous_usage_stats", False)
        return StreamKind(self.chats, bool(usage), bool(self.request.get("return_token_ids")))

    def begin(self) -> None:
        """Send the head, and a chat's first chunk, which has the role alone."""
        self.connection.sendall(STREAM_HEAD)
        if self.chats:
            role = {
                "index": 0,
                "delta": {"role": "assistant", "content": ""},
                "finish_reason": None,
            }
            usage = _usage(self.request, 0) if self.kind.usage else {}
            self.connection.sendall(_event(_chunk(chats=True, choices=[role]) | usage))

    def end(self) -> None:
        """Send the usage and the end of the stream."""
        usage = _usage(self.request, self.request["max_tokens"])
        summary = _chunk(chats=self.chats, choices=[]) | usage
        self.connection.sendall(_event(summary) + _event(None) + b"0\r\n\r\n")
        if self._closes:
            self.connection.shutdown(socket.SHUT_RDWR)


def stream(timetable: Timetable) -> None:
    """Print the port, then stream round after round and print what was sent when."""
    gc.disable()
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    while True:
        clients = _gathered(timetable.streams, listener, selector)
        for client in clients:
            client.begin()
        sent = _stream_round(timetable, clients)
        for client in clients:
            client.end()
        print(json.dumps(sent), flush=True)


def _gathered(
    count: int, listener: socket.socket, selector: selectors.BaseSelector
) -> list[_Client]:
    waiting: list[_Client] = []
    while len(waiting) < count:
        for key, _ in selector.select():
            if key.data is None:
                client = _Client(listener.accept()[0])
                selector.register(client.connection, selectors.EVENT_READ, client)
                continue
            client = key.data
            data = client.connection.recv(READ_BYTES)
            if not data:
                selector.unregister(client.connection)
                client.connection.close()
            elif client.take(data):
                waiting.append(client)
    return waiting


def _stream_round(timetable: Timetable, clients: list[_Client]) -> list[tuple[int, list[float]]]:
    request = clients[0].request
    sent: list[tuple[int, list[float]]] = []
    total = 0
    due = time.monotonic()
    for wait_s, tokens in timetable.steps(request["max_tokens"]):
        total += tokens
        chunks = {
            kind: _event(_step_chunk(request, kind, tokens, total, first=not sent))
            for kind in {client.kind for client in clients}
        }
        outgoing = [(client.connection.sendall, chunks[client.kind]) for client in clients]
        due += wait_s
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        times = []
        for send, chunk in outgoing:
            times.append(time.time())
            send(chunk)
        sent.append((tokens, times))
    return sent


def _step_chunk(
    request: dict[str, Any], kind: StreamKind, tokens: int, total: int, *, first: bool
) -> dict[str, Any]:
    text = " word" * tokens
    ids = [TOKEN_ID] * tokens if kind.token_ids else None
    prompt_ids = [TOKEN_ID] * _prompt_tokens(request) if kind.token_ids and first else None
    choice = {
        "index": 0, **({"delta": {"content": text}} if kind.chats else {"text": text}),
        "logprobs": None, "finish_reason": "length" if total == request["max_tokens"] else None,
        "stop_reason": None, "prompt_token_ids": prompt_ids, "token_ids": ids,
    }  # fmt: skip
    chunk = _chunk(chats=kind.chats, choices=[choice])
    return chunk | _usage(request, total) if kind.usage else chunk


def _chunk(*, chats: bool, choices: list[dict[str, Any]]) -> dict[str, Any]:
    kind = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk"}
    if not chats:
        kind = {"id": "cmpl-0123456789abcdef0123456789abcdef", "object": "text_completion"}
    return {**kind, "created": 1700000000, "model": MODEL, "choices": choices}


def _prompt_tokens(request: dict[str, Any]) -> int:
    return len(request["prompt"]) if "prompt" in request else CHAT_PROMPT_TOKENS


def _usage(request: dict[str, Any], tokens: int) -> dict[str, dict[str, int]]:
    prompt = _prompt_tokens(request)
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}
    return {"usage": usage}


def _event(chunk: dict[str, Any] | None) -> bytes:
    """Return an event as a chunk of a chunked body; None is the end of a stream."""
    data = "[DONE]" if chunk is None else json.dumps(chunk, separators=(",", ":"))
    text = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


if __name__ == "__main__":
    stream(Timetable(**json.loads(sys.argv[1])))
