"""A server whose model says what a test tells it to, with tokens that are words."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = re.compile(r"\s*\w+|\s*\W")
LONG = 500  # characters; longer texts come in pieces of so many
Body = dict[str, Any]


@dataclass
class Said:
    """What the model says to a request, before stops and limits."""

    content: str = "It is cold."
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200
    instead: Any = None
    """Answered in place of a chat completion: JSON, or a page of text."""


class Scripted(ThreadingHTTPServer):
    """One server; `asked` holds the bodies of the chats, in order."""

    daemon_threads = True

    def __init__(self, says: Callable[[Body], Said]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says = says
        self.renders: Callable[[Body], str] = lambda _: ""
        """The prompt that `/tokenize` makes of a conversation."""
        self.asked: list[Body] = []
        self.words: dict[str, int] = {}
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away."""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.server_port}/v1", "alias")

    def ids(self, text: str) -> list[int]:
        """Return a text's tokens."""
        with self.lock:
            return [self.words.setdefault(word, len(self.words)) for word in WORDS.findall(text)]

    def text(self, ids: list[int]) -> str:
        with self.lock:
            words = [*self.words]
        return "".join(words[number] for number in ids)


@contextlib.contextmanager
def serving(says: Callable[[Body], Said]) -> Iterator[Scripted]:
    """Serve while the block lasts."""
    server = Scripted(says)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Scripted
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Say nothing."""

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            text = self.server.renders(body) if "messages" in body else body["prompt"]
            self._reply({"tokens": self.server.ids(text)})
        elif self.path == "/detokenize":
            self._reply({"prompt": self.server.text(body["tokens"])})
        else:
            self._chat(body)

    def _reply(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status)

    def _send(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chat(self, body: Body) -> None:
        with self.server.lock:
            self.server.asked.append(body)
        said = self.server.says(body)
        if said.status != 200:
            self._reply({"error": {"message": "no chat today"}}, said.status)
            return
        if isinstance(said.instead, str):
            self._send(said.instead.encode(), "text/html")
            return
        if said.instead is not None:
            self._reply(said.instead)
            return
        choice = _choice(self.server, body, said)
        ids = choice["token_ids"]
        usage = {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}
        head = {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "alias"}
        if not body.get("stream"):
            self._reply({**head, "choices": [choice], "usage": usage})
            return
        deltas = [{"role": "assistant", "content": ""}, *_deltas(choice["message"])]
        chunks: list[Body] = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        chunks[-1]["choices"][0]["token_ids"] = ids
        ends = {name: choice[name] for name in ("finish_reason", "stop_reason")}
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, **ends}]})
        chunks.append({**head, "choices": [], "usage": usage})
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self._send("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")


def _choice(server: Scripted, body: Body, said: Said) -> Body:
    """Return what comes of what the model says under the request's stops and limit."""
    reasoning, content, calls = said.reasoning, said.content, said.calls
    finish, reason = ("tool_calls" if calls else "stop"), None
    for stop in body.get("stop") or ():
        if stop in reasoning + content:
            both = (reasoning + content).partition(stop)[0]
            reasoning, content = both[: len(reasoning)], both[len(reasoning) :]
            finish, reason = "stop", stop
            break
    ids = server.ids(reasoning + content + "".join(f"{name}{given}" for name, given in calls))
    limit = int(body.get("max_tokens") or 10_000)
    if len(ids) > limit:
        ids, finish = ids[:limit], "length"
        both = server.text(ids)
        reasoning, content = both[: len(reasoning)], both[len(reasoning) :]
    message = {
        "role": "assistant",
        "content": content,
        "reasoning": reasoning or None,
        "tool_calls": [
            {"id": f"call-{at}", "type": "function", "function": {"name": name, "arguments": given}}
            for at, (name, given) in enumerate(calls)
        ],
    }
    return {
        "index": 0,
        "message": message,
        "finish_reason": finish,
        "stop_reason": reason,
        "token_ids": ids,
    }


def _deltas(message: Body) -> Iterator[Body]:
    for name in ("reasoning", "content"):
        text = message[name] or ""
        long = [text[at : at + LONG] for at in range(0, len(text), LONG)]
        for piece in long if len(text) > LONG else WORDS.findall(text):
            yield {name: piece}
    for index, call in enumerate(message["tool_calls"]):
        yield {"tool_calls": [{**call, "index": index}]}
