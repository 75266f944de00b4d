"""A server that streams completions to a script, in a process of its own, and knows when it did.

It waits until a number of completions is asked for, then sends to all of them step by step, as an
engine does whose batch they are; then it waits for the next. The chunks are those of vLLM 0.32.0,
each a chunk of a chunked body in a packet of its own.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import multiprocessing
import random
import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue

HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 22 Nov 2026 02:10:34 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
READ_BYTES = 2**18
LIMIT_S = 120.0
MODEL = "scripted"
TOKEN_ID = 1234


@dataclass(frozen=True)
class Script:
    """What is sent when, the same in every round."""

    streams: int
    every_s: float
    """From one step to the next."""
    stall_share: float = 0.0
    """The share of the steps that come later than that."""
    stall_s: float = 0.0
    """How much later at most."""
    most_tokens: int = 1
    """A step brings each stream one chunk, of 1 to so many tokens."""

    def steps(self, tokens: int) -> Iterator[tuple[float, int]]:
        """Yield each step's seconds from the step before, and its tokens, until all are sent."""
        chance = random.Random("steps")  # noqa: S311 - it hides nothing
        while tokens > 0:
            stalls = chance.random() < self.stall_share
            wait_s = self.every_s + (chance.uniform(0.0, self.stall_s) if stalls else 0.0)
            count = min(tokens, chance.randint(1, self.most_tokens))
            yield wait_s, count
            tokens -= count


@dataclass(frozen=True)
class Sent:
    """One step as it went out: its tokens, and to each stream when (Unix seconds)."""

    tokens: int
    times: list[float]


def gaps(sent: list[Sent]) -> list[tuple[float, int]]:
    """Return the seconds between the chunks of each stream, with the tokens of the later one."""
    return [
        (later - earlier, after.tokens)
        for before, after in itertools.pairwise(sent)
        for earlier, later in zip(before.times, after.times, strict=True)
    ]


class Streams:
    """The running server, seen from outside."""

    def __init__(self, script: Script) -> None:
        self._ports: Queue[int] = multiprocessing.Queue()
        self._sent: Queue[list[Sent]] = multiprocessing.Queue()
        self._process = multiprocessing.Process(
            target=_serve, args=(script, self._ports, self._sent), daemon=True
        )
        self._process.start()
        self.endpoint = Endpoint(f"http://127.0.0.1:{self._ports.get(timeout=LIMIT_S)}/v1", MODEL)

    def sent(self) -> list[Sent]:
        """Return what the next round not yet asked for here sent; wait for its end."""
        return self._sent.get(timeout=LIMIT_S)

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.join()


@contextlib.contextmanager
def serving(script: Script) -> Iterator[Streams]:
    """Serve while the block lasts."""
    streams = Streams(script)
    try:
        yield streams
    finally:
        streams.stop()


class _Client:
    """A connection, and the completion asked for over it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.asked: dict[str, Any] = {}
        self._data = bytearray()
        self._closes = False

    def take(self, data: bytes) -> bool:
        """Take what came; return whether a completion is asked for, whole."""
        self._data += data
        head, separator, body = bytes(self._data).partition(b"\r\n\r\n")
        fields = head.lower()
        size = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not separator or len(body) < size:
            return False
        self._data.clear()
        if not head.startswith(b"POST /v1/completions "):  # peers look for metrics and tokenizers
            self.connection.sendall(NOT_FOUND)
            return False
        self.asked = json.loads(body)
        self._closes = b"connection: close" in fields
        return True

    @property
    def wants(self) -> tuple[bool, bool]:
        """Whether each chunk is to tell the usage, and the token ids."""
        usage = self.asked.get("stream_options", {}).get("continuous_usage_stats", False)
        return bool(usage), bool(self.asked.get("return_token_ids"))

    def end(self) -> None:
        """Say that this was all, as vLLM does."""
        whole = _usage(self.asked["max_tokens"], len(self.asked["prompt"]))
        summary = {**_head(), "choices": [], "usage": whole}
        self.connection.sendall(_event(summary) + _event(None) + b"0\r\n\r\n")
        if self._closes:
            self.connection.shutdown(socket.SHUT_RDWR)


def _serve(script: Script, ports: Queue[int], sent: Queue[list[Sent]]) -> None:
    gc.disable()
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    ports.put(listener.getsockname()[1])
    while True:
        clients = _gathered(script.streams, listener, selector)
        for client in clients:
            client.connection.sendall(HEAD)
        sent.put(_stream(script, clients))
        for client in clients:
            client.end()


def _gathered(
    count: int, listener: socket.socket, selector: selectors.BaseSelector
) -> list[_Client]:
    asking: list[_Client] = []
    while len(asking) < count:
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
                asking.append(client)
    return asking


def _stream(script: Script, clients: list[_Client]) -> list[Sent]:
    asked = clients[0].asked
    sent: list[Sent] = []
    total = 0
    due = time.monotonic()
    for wait_s, tokens in script.steps(asked["max_tokens"]):
        total += tokens
        chunks = {
            wants: _event(_chunk(asked, tokens, total, *wants, first=not sent))
            for wants in {client.wants for client in clients}
        }
        outgoing = [(client.connection.sendall, chunks[client.wants]) for client in clients]
        due += wait_s
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        times = []
        for send, chunk in outgoing:
            times.append(time.time())
            send(chunk)
        sent.append(Sent(tokens, times))
    return sent


def _chunk(
    asked: dict[str, Any], tokens: int, total: int, usage: bool, ids: bool, *, first: bool
) -> dict[str, Any]:
    choice = {
        "index": 0, "text": " word" * tokens, "logprobs": None,
        "finish_reason": "length" if total == asked["max_tokens"] else None, "stop_reason": None,
        "prompt_token_ids": [TOKEN_ID] * len(asked["prompt"]) if ids and first else None,
        "token_ids": [TOKEN_ID] * tokens if ids else None,
    }  # fmt: skip
    chunk = {**_head(), "choices": [choice]}
    return chunk | {"usage": _usage(total, len(asked["prompt"]))} if usage else chunk


def _head() -> dict[str, Any]:
    return {
        "id": "cmpl-0123456789abcdef0123456789abcdef", "object": "text_completion",
        "created": 1700000000, "model": MODEL,
    }  # fmt: skip


def _usage(tokens: int, prompt: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens,
    }  # fmt: skip


def _event(data: dict[str, Any] | None) -> bytes:
    told = "[DONE]" if data is None else json.dumps(data, separators=(",", ":"))
    text = f"data: {told}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)
