"""A whole server: answers as vLLM's OpenAI-compatible server does, without a model.

Use it where the plugin boots a server or attaches to one. `running(StubServer(faults))` serves
from this process. To serve from another process, a lane starts this file as a program that needs
the standard library only:

    python -I -S stub.py PORT [vLLM's flags]

`$FAKE` lists faults, separated by commas; `$FAKE_KEY_FILE` names a file that the program writes
its API key to; `$FAKE_NAME` is the model's name for a program that is started without vLLM's flags.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

REASONING = "The user asks for a capital."
CONTENT = "Paris is the capital of France."
BANGS = "!" * 24
CALL = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
DEATHS = {
    "dies-after": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "fills-after": "OSError: [Errno 28] No space left on device: '/cache/vllm/x.so'",
}
CAUSE = "No available memory for the cache blocks."
SLEEPER = "import os, time; os.setsid(); time.sleep(600)"


class Faults(dict[str, int]):
    """The names of faults, each with its number, which is 1 by default: `bangs,dies-after:3`."""

    def __init__(self, words: str) -> None:
        for word in filter(None, words.split(",")):
            name, _, number = word.partition(":")
            self[name] = int(number or 1)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: StubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        print(f"(APIServer pid={os.getpid()}) INFO: {format % args}", flush=True)
        if "leaks" in self.server.faults:
            print(f"DEBUG: headers {dict(self.headers.items())}", flush=True)

    def do_GET(self) -> None:
        # An unread body would be parsed as the connection's next request.
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/health" and "no-health" not in self.server.faults:
            self.reply({})
        elif self.path == "/version":
            self.reply({"version": "0.32.0"})
        elif not self.known() and "any-list" not in self.server.faults:
            self.reply({"error": "Unauthorized"}, 401)
        elif self.path == "/v1/models" and "no-openai" in self.server.faults:
            self.reply({"hello": "I am some other program"})
        elif self.path == "/v1/models":
            self.reply({"object": "list", "data": [{"id": name} for name in self.server.names]})
        else:
            self.reply({"error": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.known():
            self.reply({"error": "Unauthorized"}, 401)
        elif "strict" in self.server.faults and not body.get("messages"):
            self.reply({"error": {"message": "messages is empty", "code": 400}}, 400)
        else:
            self.server.chats += 1
            self.chat(body)

    def known(self) -> bool:
        key = self.server.key
        sent = self.headers.get("Authorization")
        return not key or sent == f"Bearer {key}" or "any-key" in self.server.faults

    def reply(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chat(self, body: dict[str, Any]) -> None:
        faults = self.server.faults
        for word, line in DEATHS.items():
            if word in faults and self.server.chats > faults[word]:
                print(f"(EngineCore pid=7) {line}")
                sys.stdout.flush()
                os._exit(9)
        for word, status in {"chat-404": 404, "chat-500": 500}.items():
            if word in faults:
                sent = f" to {self.headers.get('Authorization')}" if "echoes" in faults else ""
                self.reply({"error": {"message": f"no chat today ({word}){sent}"}}, status)
                return
        thinking = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
        message: dict[str, Any] = {"role": "assistant", "content": CONTENT}
        message["reasoning"] = REASONING if thinking else None
        if "echoes" in faults:
            message["content"] += f" You sent {self.headers.get('Authorization')}."
        if "bangs" in faults and self.server.chats > 1:
            message["content"] = BANGS
        if body.get("tools"):
            message["content"] = None
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": CALL}]
        if "trips" in faults and "stumble" in json.dumps(body):
            message = {"role": "assistant", "content": BANGS, "reasoning": None}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        if body.get("stream"):
            self.stream(message, finish)
        else:
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self.reply({**self.head("chat.completion"), "choices": [choice], "usage": USAGE})

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": "chat-1", "object": kind, "created": 0, "model": self.server.names[0]}

    def stream(self, message: dict[str, Any], finish: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        deltas = self.deltas(message)
        for number, delta in enumerate(deltas):
            self.event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
            if number and not self.goes_on():
                return
        self.event(choices=[{"index": 0, "delta": {}, "finish_reason": finish}])
        self.event(choices=[], usage=USAGE)
        if "no-done" not in self.server.faults:
            self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def deltas(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the deltas of a stream's events."""
        faults = self.server.faults
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for field in ("reasoning", "content"):
            text = message[field] or ""
            lost = field == "reasoning" and "loses-reasoning" in faults and self.server.chats > 1
            if not lost:
                deltas += [{field: text[at : at + 9]} for at in range(0, len(text), 9)]
        for index, call in enumerate(message.get("tool_calls", ())):
            deltas.append({"tool_calls": [{**call, "index": index}]})
        return deltas[:1] if "chat-empty" in faults else deltas

    def goes_on(self) -> bool:
        """Apply the faults of a stream that has begun; return whether the stream goes on."""
        faults = self.server.faults
        if "chat-hangs" in faults:
            time.sleep(600)
        while "chat-never-ends" in faults:
            self.chunk(b": still there\n\n")
            time.sleep(0.05)
        if "chat-babbles" in faults:
            self.chunk(b"data: {not json\n\n")
        if "chat-breaks" in faults:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return False
        if "chat-errs" in faults:
            self.event(error={"message": "EngineCore encountered an issue", "code": 500})
            self.chunk(b"data: [DONE]\n\n")
        ends = {"chat-errs", "chat-ends-early"} & set(faults)
        if ends:
            self.chunk(b"")
        return not ends

    def event(self, **fields: Any) -> None:
        spaced = "spaces" in self.server.faults
        value = fields if "error" in fields else {**self.head("chat.completion.chunk"), **fields}
        text = json.dumps(value, separators=None if spaced else (",", ":"))
        self.chunk(f"data: {text}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class StubServer(ThreadingHTTPServer):
    """Serves a model under `names`; `chats` counts the requests for a completion."""

    handler: type[BaseHTTPRequestHandler] = Handler
    daemon_threads = True
    allow_reuse_address = False

    def __init__(
        self,
        faults: str = "",
        *,
        key: str | None = None,
        names: Sequence[str] = ("m",),
        port: int = 0,
    ) -> None:
        """`key`: the API key that requests need; `port`: 0 for a free one."""
        super().__init__(("127.0.0.1", port), self.handler)
        self.names = names
        self.key = key
        self.faults = Faults(faults)
        self.chats = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing about clients that close their connection."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


def leak() -> None:
    """Print arguments and environment as careless programs do, and the key in two pieces."""
    print("started as", sys.argv, "with", dict(os.environ), flush=True)
    for name, value in os.environ.items():
        encoded = base64.b64encode(f"user:{value}".encode()).decode()
        print(f"GET /?{name}={quote(value)}", json.dumps({name: value}), encoded, flush=True)
    key = os.environ["VLLM_API_KEY"]
    print("the key is", key[:12], end="", flush=True)
    time.sleep(0.4)
    print(key[12:], flush=True)


def main() -> None:
    """Boot with the faults of `$FAKE`, and serve."""
    faults = Faults(os.environ.get("FAKE", ""))
    flags = sys.argv[2:]
    if "FAKE_NAME" in os.environ:
        names = [os.environ["FAKE_NAME"]]
    else:
        at = flags.index("--served-model-name") + 1
        names = [*flags[at : next(i for i in range(at, len(flags)) if flags[i].startswith("--"))]]
    print(f"(APIServer pid={os.getpid()}) INFO 11-20 10:00:00 [api.py:1] a fake boots", flush=True)
    if "FAKE_KEY_FILE" in os.environ:
        Path(os.environ["FAKE_KEY_FILE"]).write_text(os.environ["VLLM_API_KEY"])
    if "slow" in faults:
        time.sleep(1.0)
    if "leaks" in faults:
        leak()
    if "spawns" in faults:
        subprocess.Popen([sys.executable, "-c", SLEEPER])
    while "chatters" in faults:
        print("still loading", flush=True)
        time.sleep(0.05)
    if "silent" in faults:
        time.sleep(600)
    if "disk-full" in faults:
        sys.exit("OSError: [Errno 28] No space left on device: '/srv/cache/kernel.so'")
    if "dies" in faults:
        print(f"(EngineCore pid={os.getpid()}) ValueError: {CAUSE}")
        sys.exit("RuntimeError: Engine core initialization failed. See root cause above.")
    key = os.environ.get("VLLM_API_KEY")
    server = StubServer(os.environ.get("FAKE", ""), key=key, names=names, port=int(sys.argv[1]))
    server.serve_forever(0.01)


if __name__ == "__main__":
    main()
