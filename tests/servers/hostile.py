"""A server that nobody should trust: it answers as `stub` does, but for one behaviour.

Each behaviour is one of `BEHAVIOURS`: the route it is for, and what is sent there. All are bounded:
by `MOST_BYTES`, by `LONGEST_S`, and by the client's leaving, whichever comes first.
"""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from servers.stub import Handler, StubServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_BYTES = 3 * 2**30
LONGEST_S = 100.0
MIB = 2**20
MODELS, VERSION, METRICS, OPENAPI = "/v1/models", "/version", "/metrics", "/openapi.json"
CHAT, TOKENIZE = "/v1/chat/completions", "/tokenize"
COMPLETIONS, RESPONSES, MESSAGES = "/v1/completions", "/v1/responses", "/v1/messages"
DIALECTS = (COMPLETIONS, RESPONSES, MESSAGES)
TURNS_HOSTILE = 1
"""A chat behaviour begins after so many chats: the server has booted by then."""


class HostileHandler(Handler):
    """Answers one connection."""

    server: HostileServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Print nothing."""

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        if self.path == OPENAPI and self.server.behaviour.path in DIALECTS:
            self.reply({"paths": {path: {"post": {}} for path in (CHAT, *DIALECTS)}})
        elif not self.hostile({}):
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = json.loads(data) if data.startswith(b"{") else {}
        if not self.hostile(body):
            self.server.chats += self.path == CHAT
            if self.path == CHAT:
                self.chat(body)
            elif self.path == TOKENIZE:
                self.reply({"tokens": [1, 2, 3], "count": 3, "max_model_len": 4096})
            else:
                self.reply({"error": "Not Found"}, 404)

    def hostile(self, body: dict[str, Any]) -> bool:
        """Answer in the hostile way where it is for this route; return whether it was."""
        behaviour = self.server.behaviour
        if self.path != behaviour.path:
            return False
        if self.path == CHAT and self.server.chats < TURNS_HOSTILE:
            return False
        if behaviour.stream is not None and behaviour.stream != bool(body.get("stream")):
            return False
        self.close_connection = True
        self.server.hostile_answers += 1
        self.send_all(behaviour.answer(body))
        return True

    def send_all(self, pieces: Iterable[bytes | float]) -> None:
        """Send bytes, and wait where a number of seconds stands."""
        begun, sent = time.monotonic(), 0
        try:
            for piece in pieces:
                if isinstance(piece, float):
                    self.server.closing.wait(piece)
                else:
                    self.wfile.write(piece)
                    sent += len(piece)
                over = time.monotonic() - begun > LONGEST_S or sent > MOST_BYTES
                if over or self.server.closing.is_set():
                    return
        except OSError:
            self.server.left += 1


class HostileServer(StubServer):
    """Serves with one behaviour of `BEHAVIOURS`."""

    handler = HostileHandler

    def __init__(self, name: str) -> None:

        super().__init__()
        self.behaviour = BEHAVIOURS[name]
        self.closing = threading.Event()
        self.hostile_answers = 0
        self.left = 0
        """How many answers the client did not wait for."""

    def shutdown(self) -> None:
        self.closing.set()
        super().shutdown()


class Behaviour(NamedTuple):
    """What is sent on a route instead of an answer."""

    path: str
    answer: Callable[[dict[str, Any]], Iterable[bytes | float]]
    stream: bool | None = None
    """Whether it is for streams alone, or for whole answers alone."""


def head(kind: str = "application/json", *more: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(data: bytes | str, kind: str = "application/json") -> Callable[[Any], Sequence[bytes]]:
    """Return what answers with these bytes."""
    body = data.encode() if isinstance(data, str) else data
    return lambda _: (head(kind, f"Content-Length: {len(body)}"), body)


def models(**fields: Any) -> Callable[[Any], Sequence[bytes]]:
    """Return what lists one model with these fields."""
    return whole(json.dumps({"object": "list", "data": [{"id": "m", **fields}]}))


def chat(choice: Any, **fields: Any) -> Callable[[Any], Sequence[bytes]]:
    """Return what answers a chat with this choice."""
    answer = {
        "id": "chat-1", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 5}, **fields,
    }  # fmt: skip
    return whole(json.dumps(answer))


def message(**fields: Any) -> dict[str, Any]:
    """Return a choice whose message has these fields."""
    content = {"role": "assistant", "content": "Paris is the capital of France.", **fields}
    return {"index": 0, "message": content, "finish_reason": "stop"}


EVENTS = head("text/event-stream")


def event(delta: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """Return an event of a stream."""
    choice = {"index": 0, "delta": {"content": " a"} if delta is None else delta}
    chunk = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return f"data: {json.dumps({**chunk, 'choices': [choice], **fields})}\n\n".encode()


def typed(kind: str, **fields: Any) -> bytes:
    """Return an event of a stream of the Responses or the Messages API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def events(*parts: bytes) -> Callable[[Any], Sequence[bytes]]:
    """Return what streams these bytes."""
    return lambda _: (EVENTS, *parts, b"data: [DONE]\n\n")


def endless(first: bytes, piece: bytes, pause: float = 0.0) -> Callable[[Any], Any]:
    """Return what sends one piece again and again."""

    def answer(_: Any) -> Iterable[bytes | float]:
        yield first
        for _ in itertools.count():
            yield piece
            if pause:
                yield pause

    return answer


def bomb(_: Any) -> Iterable[bytes]:
    """A gigabyte of spaces, about a megabyte on the wire."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    yield head("application/json", "Content-Encoding: gzip")
    for _ in range(1024):
        yield packer.compress(b" " * MIB)
    yield packer.flush()


DEEP = "[" * 100_000 + "]" * 100_000
DIGITS = "9" * 5000
MIXED = [0, "0", None, [1], True, 1.0]
CALL = {"id": 7, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}

BEHAVIOURS: dict[str, Behaviour] = {
    "models-endless": Behaviour(MODELS, endless(head() + b'{"data": [', b'{"id": "m"},' * 4096)),
    "models-bomb": Behaviour(MODELS, bomb),
    "models-drip": Behaviour(MODELS, endless(head() + b'{"data": [', b" ", 0.5)),
    "models-deep": Behaviour(MODELS, whole(f'{{"data": {DEEP}}}')),
    "models-digits": Behaviour(MODELS, whole(f'{{"data": [{{"id": {DIGITS}}}]}}')),
    "models-number": Behaviour(MODELS, whole('{"data": 7}')),
    "models-text": Behaviour(MODELS, whole('{"data": "none"}')),
    "models-empty-body": Behaviour(MODELS, whole("")),
    "models-html": Behaviour(MODELS, whole("<html>" * 1000, "text/html")),
    "models-bytes": Behaviour(MODELS, whole(bytes(range(256)) * 64)),
    "models-silent": Behaviour(MODELS, lambda _: (100.0,)),
    "models-closes": Behaviour(MODELS, lambda _: ()),
    "models-continue": Behaviour(MODELS, endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "models-continue-slow": Behaviour(MODELS, endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.5)),
    "models-headers": Behaviour(MODELS, endless(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 512)),
    "models-header-drip": Behaviour(MODELS, endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"b", 0.5)),
    "models-encoding": Behaviour(
        MODELS, lambda _: (head("application/json", "Content-Encoding: br"), b"\x00" * 64)
    ),
    "models-bad-gzip": Behaviour(
        MODELS, lambda _: (head("application/json", "Content-Encoding: gzip"), b"not gzip")
    ),
    "models-half-gzip": Behaviour(
        MODELS,
        lambda _: (
            head("application/json", "Content-Encoding: gzip"),
            gzip.compress(b'{"data": []}')[:-9],
        ),
    ),
    "models-short": Behaviour(
        MODELS, lambda _: (head("application/json", "Content-Length: 9999"), b'{"data": []}')
    ),
    "models-bad-chunks": Behaviour(
        MODELS, lambda _: (head("application/json", "Transfer-Encoding: chunked"), b"zz\r\nhello")
    ),
    "models-redirect": Behaviour(
        MODELS,
        lambda _: (head("text/plain", f"Location: {MODELS}", "Content-Length: 0", status="302 X"),),
    ),
    "models-root": Behaviour(MODELS, models(root="/etc", max_model_len=4096)),
    "models-root-number": Behaviour(MODELS, models(root=7, max_model_len=4096)),
    "models-length-absurd": Behaviour(MODELS, models(max_model_len=10**30)),
    "models-length-negative": Behaviour(MODELS, models(max_model_len=-5)),
    "models-length-text": Behaviour(MODELS, models(max_model_len="many")),
    "models-length-nan": Behaviour(
        MODELS, whole('{"data": [{"id": "m", "max_model_len": NaN}, {"id": [], "root": {}}]}')
    ),
    "models-escapes": Behaviour(MODELS, models(root="\x1b]0;owned\x07\x1b[2J")),
    "version-number": Behaviour(VERSION, whole('{"version": 7}')),
    "version-list": Behaviour(VERSION, whole("[1, 2]")),
    "version-deep": Behaviour(VERSION, whole(DEEP)),
    "version-escapes": Behaviour(VERSION, whole(json.dumps({"version": "\x1b[2J" * 50}))),
    "metrics-words": Behaviour(
        METRICS,
        whole("vllm:num_requests_running many\nvllm:num_requests_waiting NaN\n", "text/plain"),
    ),
    "metrics-endless": Behaviour(METRICS, endless(head("text/plain"), b"vllm:x 1\n" * 4096)),
    "openapi-deep": Behaviour(OPENAPI, whole(f'{{"paths": {DEEP}}}')),
    "openapi-list": Behaviour(OPENAPI, whole('{"paths": [1, 2]}')),
    "chat-call-id": Behaviour(CHAT, chat(message(content=None, tool_calls=[CALL])), stream=False),
    "chat-content-number": Behaviour(CHAT, chat(message(content=5)), stream=False),
    "chat-content-list": Behaviour(CHAT, chat(message(content=[{"a": 1}])), stream=False),
    "chat-no-message": Behaviour(CHAT, chat({"index": 0}), stream=False),
    "chat-choices-number": Behaviour(CHAT, whole('{"choices": 7}'), stream=False),
    "chat-choice-null": Behaviour(CHAT, chat(None), stream=False),
    "chat-list": Behaviour(CHAT, whole("[]"), stream=False),
    "chat-usage-text": Behaviour(CHAT, chat(message(), usage="many"), stream=False),
    "chat-usage-absurd": Behaviour(
        CHAT,
        chat(message(), usage={"prompt_tokens": 10**40, "completion_tokens": -1}),
        stream=False,
    ),
    "chat-deep": Behaviour(CHAT, whole(f'{{"choices": {DEEP}}}'), stream=False),
    "chat-endless": Behaviour(CHAT, endless(head() + b'{"a": "', b"a" * 65536), stream=False),
    "chat-silent": Behaviour(CHAT, lambda _: (100.0,)),
    "chat-drip": Behaviour(CHAT, endless(head(), b" ", 0.1)),
    "chat-error-page": Behaviour(
        CHAT, lambda _: (head("text/html", status="500 X"), b"<p>" * 100_000)
    ),
    "stream-endless": Behaviour(CHAT, endless(EVENTS, event()), stream=True),
    "stream-slow-tokens": Behaviour(CHAT, endless(EVENTS, event(), 0.01), stream=True),
    "stream-line": Behaviour(CHAT, endless(EVENTS + b"data: ", b"a" * 65536), stream=True),
    "stream-one-byte": Behaviour(CHAT, endless(EVENTS, b":"), stream=True),
    "stream-deep": Behaviour(CHAT, events(f"data: {DEEP}\n\n".encode()), stream=True),
    "stream-call-id": Behaviour(
        CHAT, events(event({"tool_calls": [{**CALL, "index": 0}]})), stream=True
    ),
    "stream-call-index": Behaviour(
        CHAT, events(event({"tool_calls": [{**CALL, "id": "a", "index": "x"}]})), stream=True
    ),
    "stream-delta-null": Behaviour(
        CHAT, events(b'data: {"choices": [{"index": 0, "delta": null}]}\n\n'), stream=True
    ),
    "stream-delta-number": Behaviour(CHAT, events(event({"content": 3})), stream=True),
    "stream-numbers": Behaviour(CHAT, events(b"data: 7\n\n", b"data: []\n\n"), stream=True),
    "stream-bytes": Behaviour(CHAT, events(b"data: \xff\xfe\x00\n\n"), stream=True),
    "stream-nan": Behaviour(
        CHAT, events(event(usage={"prompt_tokens": float("nan")})), stream=True
    ),
    "stream-choice-indices": Behaviour(
        CHAT,
        events(
            event(choices=[{"index": index, "delta": {"content": "a"}} for index in MIXED]),
            event(choices=[{"index": 0, "delta": "a"}, None]),
        ),
        stream=True,
    ),
    "stream-choices-number": Behaviour(CHAT, events(event(choices=7)), stream=True),
    "completions-number": Behaviour(COMPLETIONS, whole('{"choices": 7}')),
    "completions-stream-null": Behaviour(
        COMPLETIONS, events(b'data: {"choices": [null, 7]}\n\n'), stream=True
    ),
    "responses-list": Behaviour(RESPONSES, whole("[]")),
    "responses-output": Behaviour(
        RESPONSES, whole(json.dumps({"id": 7, "model": "m", "status": [], "output": [7, {}]}))
    ),
    "responses-deep": Behaviour(RESPONSES, whole(f'{{"output": {DEEP}}}')),
    "responses-endless": Behaviour(RESPONSES, endless(head() + b'{"a": "', b"a" * 65536)),
    "responses-stream-index": Behaviour(
        RESPONSES,
        events(
            *(
                typed(kind, output_index=index, item=7, delta=[], response="none")
                for index in MIXED
                for kind in (
                    "response.created",
                    "response.output_item.added",
                    "response.output_text.delta",
                    "response.output_item.done",
                    "response.completed",
                )
            )
        ),
        stream=True,
    ),
    "responses-stream-endless": Behaviour(
        RESPONSES, endless(EVENTS, typed("response.in_progress", response={})), stream=True
    ),
    "messages-content": Behaviour(
        MESSAGES, whole(json.dumps({"content": [7, {"type": "text", "text": 7}], "usage": "many"}))
    ),
    "messages-stream-index": Behaviour(
        MESSAGES,
        events(
            *(
                typed(kind, index=index, content_block=7, delta="a", message=[], usage=7)
                for index in MIXED
                for kind in (
                    "message_start",
                    "content_block_start",
                    "content_block_delta",
                    "content_block_stop",
                    "message_delta",
                    "message_stop",
                )
            )
        ),
        stream=True,
    ),
    "messages-stream-deep": Behaviour(
        MESSAGES, events(f"event: message_start\ndata: {DEEP}\n\n".encode()), stream=True
    ),
    "tokenize-words": Behaviour(TOKENIZE, whole('{"tokens": ["a", null], "max_model_len": 1e400}')),
    "tokenize-negative": Behaviour(TOKENIZE, whole('{"tokens": [-1, 1e9], "max_model_len": -7}')),
}
