"""A server that streams to a script, in a process of its own: it knows when it sent what.

Every request's answer is a first chunk with the role alone, then `chunks` chunks of `tokens` tokens
each, to all streams at once every `every_s` seconds. It prints its port, and at the end, as JSON,
the gaps between the tokens it sent.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


def event(data: dict[str, Any] | None) -> bytes:
    """Return an event as a chunk of a chunked body."""
    text = f"data: {'[DONE]' if data is None else json.dumps(data)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


def chunk(tokens: int, text: str, **delta: str) -> dict[str, Any]:
    """Return a chunk of a streamed chat that says how many tokens there are by now."""
    return {
        "id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1700000000,
        "model": "scripted", "choices": [{"index": 0, "delta": {"content": text, **delta},
                                          "logprobs": None, "finish_reason": None}],
        "usage": {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens},
    }  # fmt: skip


def serve(streams: int, chunks: int, every_s: float, tokens: int) -> None:
    """Wait for so many requests, then stream to all of them; print the truth."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    clients: list[socket.socket] = []
    while len(clients) < streams:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if client.recv(2**16).startswith(b"POST"):
            clients.append(client)
        else:  # peers look for metrics
            client.sendall(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n")
            client.close()
    for client in clients:
        client.sendall(HEAD + event(chunk(0, "", role="assistant")))
    events = [event(chunk(tokens * (number + 1), "word " * tokens)) for number in range(chunks)]
    sent: list[list[float]] = []
    due = time.monotonic()
    for text in events:
        due += every_s
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        times = []
        for client in clients:
            client.sendall(text)
            times.append(time.monotonic())
        sent.append(times)
    for client in clients:
        client.sendall(event(None) + b"0\r\n\r\n")
        client.close()
    gaps = [
        (later - earlier) / tokens
        for before, after in itertools.pairwise(sent)
        for earlier, later in zip(before, after, strict=True)
    ]
    print(json.dumps(sorted(gaps)), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
