"""Requests around a chat are sent as in the file, and the replies are kept."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.contracts import http_requests
from pytest_vllm_gates.contracts.http_requests import REUSE, send
from pytest_vllm_gates.contracts.types import HttpRequest, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.contracts.types import HttpReply

KEY = "right"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen.append((self.command, self.path, headers, body))
        self.send_response(200)
        data = b'{"id": "chat-1"}'
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Allow", self.command)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_OPTIONS(self) -> None:
        self.answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Log nothing."""


class ClosingHandler(Handler):
    protocol_version = "HTTP/1.0"


class EndlessHandler(Handler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000000")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client leaves
            while True:
                self.wfile.write(b" " * 65_536)


def serving(handler: type[Handler]) -> Iterator[Endpoint]:
    Handler.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", "alias", KEY)
    server.shutdown()
    server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    yield from serving(Handler)


@pytest.fixture
def closing() -> Iterator[Endpoint]:
    yield from serving(ClosingHandler)


def sent(endpoint: Endpoint, **fields: Any) -> tuple[HttpReply, Any]:
    reply, _ = send(endpoint, (HttpRequest(name="a request", **fields),))
    return reply, Handler.seen[0]


def test_a_post_requests_one_token(endpoint: Endpoint) -> None:
    reply, (method, path, headers, body) = sent(endpoint, body={"user": "someone"})
    assert (method, path) == ("POST", "/v1/chat/completions")
    assert headers["authorization"] == f"Bearer {KEY}"
    asked = json.loads(body)
    assert asked["max_tokens"] == 1 and asked["user"] == "someone" and asked["model"] == "alias"
    assert (reply.reply.status, reply.reply.kind) == (200, "application/json")
    assert reply.received["allow"] == "POST"
    assert reply.reply.request and reply.reply.request["body"] == asked


def test_a_completion_has_a_prompt(endpoint: Endpoint) -> None:
    _, (*_, body) = sent(endpoint, path="/v1/completions")
    assert "prompt" in json.loads(body) and "messages" not in json.loads(body)


def test_a_response_has_an_input_and_a_limit_of_its_own(endpoint: Endpoint) -> None:
    _, (*_, body) = sent(endpoint, path="/v1/responses", body={"priority": 5})
    asked = json.loads(body)
    assert "messages" not in asked and "max_tokens" not in asked
    assert (asked["max_output_tokens"], asked["priority"]) == (1, 5)


def test_a_body_is_compressed(endpoint: Endpoint) -> None:
    _, (_, _, headers, body) = sent(endpoint, compressed=True)
    assert headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(body))["model"] == "alias"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_other_methods_have_no_body(method: str, endpoint: Endpoint) -> None:
    reply, (seen_method, _, headers, body) = sent(endpoint, method=method)
    assert (seen_method, body) == (method, b"")
    assert "content-type" not in headers
    assert reply.received["allow"] == method


def test_a_key_is_sent_in_a_form_of_its_own(endpoint: Endpoint) -> None:
    _, (_, _, headers, _) = sent(
        endpoint, headers={"Authorization": "bearer ${key}"}, needs_key=True
    )
    assert headers["authorization"] == f"bearer {KEY}"
    Handler.seen.clear()
    reply, (_, _, headers, _) = sent(
        endpoint, headers={"Authorization": "Basic ${basic}"}, needs_key=True
    )
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"user:right"
    assert KEY not in str(reply.reply.request)


def test_without_a_key_its_forms_are_not_sent(endpoint: Endpoint) -> None:
    request = HttpRequest(name="a request", headers={"X-Api-Key": "${key}"}, needs_key=True)
    (reuse,) = send(replace(endpoint, api_key=None), (request,))
    assert reuse.reply.name == REUSE


def test_a_connection_is_used_twice(endpoint: Endpoint, closing: Endpoint) -> None:
    assert [reply.reused for reply in send(endpoint, ())] == [True]
    assert [reply.reused for reply in send(closing, ())] == [False]


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "MOST_BYTES", 200_000)
    servers = serving(EndlessHandler)
    try:
        assert [reply.reused for reply in send(next(servers), ())] == [None]
    finally:
        next(servers, None)


def test_dead_server_does_not_crash_the_client() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}/v1", "alias", KEY)
    reply, reuse = send(endpoint, (HttpRequest(name="a request"),))
    assert reply.reply.status is None and "Connect" in reply.reply.text
    assert reuse.reused is None


def test_shipped_requests_have_names_of_their_own() -> None:
    names = [request.name for request in load().http]
    assert len(names) == len(set(names)) == 29
    assert all(name == name.lower() for request in load().http for name in request.pinned)
