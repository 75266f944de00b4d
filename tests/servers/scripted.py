"""An HTTP server in this process that answers as a function of the test returns.

Use `ScriptedServer` for exact statuses and bodies: its function gets a request's path and body. Use
`ScriptedModel` for chats: its function gets a chat's body and returns what the model generates; the
server applies stops and limits and sends the answer whole or streamed. Use `CountingServer` for
loads of completions. A test that needs more subclasses one of them. For a whole vLLM server use
`stub`; for an answer that is not HTTP, or has to come in time, use `raw`.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.client.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from email.message import Message

WORDS = re.compile(r"\s*\w+|\s*\W")
LONG = 500  # characters; longer texts come in pieces of so many

Body = dict[str, Any]
ServerAnswer = tuple[int, Any]
"""The status, and the body: `Text` as it is, a list as the events of a stream, the rest as JSON."""


@dataclass(frozen=True)
class Text:
    """An answer's body that is sent as it is."""

    text: str
    content_type: str = "text/plain"


@dataclass(frozen=True)
class ServerRequest:
    """A request as the server got it."""

    method: str
    path: str
    headers: Message[str, str]
    data: bytes

    @property
    def body(self) -> Any:
        """The JSON that was sent; None for a request without a body."""
        return json.loads(self.data) if self.data else None


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request with what `answer` returns for its path and body."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        answer: Callable[[str, Any], ServerAnswer] = lambda *_: (404, {"detail": "Not Found"}),
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._answer = answer
        self.requests_seen: list[ServerRequest] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()
        """Set when the server ends; an answer that hangs waits for it."""

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        """Return the answer to a request."""
        return self._answer(request.path, request.body)

    @property
    def endpoint(self) -> Endpoint:
        """Where the server answers, for a model named `alias`."""
        return Endpoint(f"http://127.0.0.1:{self.server_port}/v1", "alias")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback, but not of clients that close their connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def shutdown(self) -> None:
        self.closing.set()
        super().shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Print nothing about requests."""

    def do_GET(self) -> None:
        # An unread body would be parsed as the connection's next request.
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = ServerRequest(self.command, self.path, self.headers, data)
        with self.server.lock:
            self.server.requests_seen.append(request)
        status, content = self.server.answer_to(request)
        if isinstance(content, Text):
            self._send(status, content.text, content.content_type)
        elif isinstance(content, list):
            events = [f"data: {json.dumps(event)}\n\n" for event in content]
            self._send(status, "".join([*events, "data: [DONE]\n\n"]), "text/event-stream")
        else:
            self._send(status, json.dumps(content), "application/json")

    def do_POST(self) -> None:
        self.do_GET()

    def _send(self, status: int, text: str, content_type: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class CountingServer(ScriptedServer):
    """Streams completions, answers chats with their last message, and counts tokens in metrics."""

    def __init__(self, *, hangs: bool = False) -> None:
        """`hangs`: leave completions unanswered until the server ends."""
        super().__init__(self._route)
        self.hangs = hangs
        self.generated = self.read = 0

    def _route(self, path: str, body: Any) -> ServerAnswer:
        if body is None:
            return 200, Text(
                "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
                f"vllm:generation_tokens_total {self.generated}\n"
                f"vllm:prompt_tokens_total {self.read}\n"
            )
        if path == "/v1/completions":
            return 200, self._completion(body)
        choice = (body.get("structured_outputs") or {}).get("choice")
        part = {"content": choice[0] if choice else body["messages"][-1]["content"]}
        if body.get("stream"):
            return 200, [{"choices": [{"delta": part, "finish_reason": "stop"}]}]
        return 200, {"choices": [{"message": part, "finish_reason": "stop"}]}

    def _completion(self, body: Body) -> list[Body]:
        if self.hangs:
            self.closing.wait(30)
        prompt, tokens = len(body["prompt"]), body["max_tokens"]
        with self.lock:
            self.generated += tokens
            self.read += prompt
        return [
            {
                "choices": [{"text": "x", "token_ids": [7]}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": number},
            }
            for number in range(1, tokens + 1)
        ]


@dataclass
class Generation:
    """What the model generates for a chat, before stops and limits."""

    content: str = "It is cold."
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200
    """Another status answers the chat with an error."""
    instead: Any = None
    """JSON, or a page of HTML, that is sent in place of a chat completion."""


class ScriptedModel(ScriptedServer):
    """A model that generates what `generate` returns for a chat's body; its tokens are words."""

    def __init__(self, generate: Callable[[Body], Generation]) -> None:
        super().__init__(self._route)
        self._generate = generate
        self.render: Callable[[Body], str] = lambda _: ""
        """Returns the prompt that `/tokenize` makes of a conversation."""
        self.chats_seen: list[Body] = []
        self.words: dict[str, int] = {}

    def ids(self, text: str) -> list[int]:
        """Return a text's tokens."""
        with self.lock:
            return [self.words.setdefault(word, len(self.words)) for word in WORDS.findall(text)]

    def text(self, ids: list[int]) -> str:
        """Return the text of tokens."""
        with self.lock:
            words = [*self.words]
        return "".join(words[number] for number in ids)

    def _route(self, path: str, body: Any) -> ServerAnswer:
        if body is None:
            return 200, {}
        if path == "/tokenize":
            text = self.render(body) if "messages" in body else body["prompt"]
            return 200, {"tokens": self.ids(text)}
        if path == "/detokenize":
            return 200, {"prompt": self.text(body["tokens"])}
        with self.lock:
            self.chats_seen.append(body)
        return self._chat(body, self._generate(body))

    def _chat(self, body: Body, generation: Generation) -> ServerAnswer:
        if generation.status != 200:
            return generation.status, {"error": {"message": "no chat today"}}
        if isinstance(generation.instead, str):
            return 200, Text(generation.instead, "text/html")
        if generation.instead is not None:
            return 200, generation.instead
        choice = self._choice(body, generation)
        ids = choice["token_ids"]
        usage = {"prompt_tokens": 3, "completion_tokens": len(ids), "total_tokens": 3 + len(ids)}
        head = {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "alias"}
        if not body.get("stream"):
            return 200, {**head, "choices": [choice], "usage": usage}
        deltas = [{"role": "assistant", "content": ""}, *_deltas(choice["message"])]
        chunks: list[Body] = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        chunks[-1]["choices"][0]["token_ids"] = ids
        ends = {name: choice[name] for name in ("finish_reason", "stop_reason")}
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, **ends}]})
        chunks.append({**head, "choices": [], "usage": usage})
        return 200, chunks

    def _choice(self, body: Body, generation: Generation) -> Body:
        """Return the choice that is left of a generation by the request's stops and limit."""
        reasoning, content, calls = generation.reasoning, generation.content, generation.calls
        finish, reason = ("tool_calls" if calls else "stop"), None
        for stop in body.get("stop") or ():
            if stop in reasoning + content:
                both = (reasoning + content).partition(stop)[0]
                reasoning, content = both[: len(reasoning)], both[len(reasoning) :]
                finish, reason = "stop", stop
                break
        written = "".join(f"{name}{arguments}" for name, arguments in calls)
        ids = self.ids(reasoning + content + written)
        limit = int(body.get("max_tokens") or 10_000)
        if len(ids) > limit:
            ids, finish = ids[:limit], "length"
            both = self.text(ids)
            reasoning, content = both[: len(reasoning)], both[len(reasoning) :]
        tool_calls = [
            {
                "id": f"call-{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        return {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": content,
                "reasoning": reasoning or None,
                "tool_calls": tool_calls,
            },
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
