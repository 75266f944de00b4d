"""Everything is asked once, and a server that answers nothing of it is no crash."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import conversation
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.contracts import types as contracts_types
from pytest_vllm_gates.contracts.client import ContractClient

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.contracts.types import ContractPlan, Observed

CONVERSATIONS = conversation.load_all(Path("/nowhere"))
EVENTS = 'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n: still here\n\ndata: [DONE]\n\n'
METRICS = "# TYPE vllm:a gauge\nvllm:a 1.0\n"


class Server(ThreadingHTTPServer):
    """Has what `pages` holds by `METHOD /path`: a text, or JSON; refuses the rest with 404."""

    daemon_threads = True

    def __init__(self, pages: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages
        self.asked: list[tuple[str, str | None, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def endpoint(self, key: str | None = "right") -> Endpoint:
        return Endpoint(f"http://127.0.0.1:{self.server_port}/v1", "alias", key)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Say nothing."""

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        route = f"{self.command} {self.path}"
        self.server.asked.append((route, self.headers.get("Authorization"), data))
        page = self.server.pages.get(route)
        kind = "text/event-stream; charset=utf-8" if page == EVENTS else "application/json"
        text = page if isinstance(page, str) else json.dumps(page or {"detail": "Not Found"})
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        self.do_GET()


Serves = Callable[[dict[str, Any]], Server]


@pytest.fixture
def serves() -> Iterator[Serves]:
    """Start servers that end with the test."""
    started: list[Server] = []

    def start(pages: dict[str, Any]) -> Server:
        started.append(Server(pages))
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def plan() -> ContractPlan:
    return contracts_types.load()


def observe(
    endpoint: Endpoint, family: Family, plan: ContractPlan, max_tokens: int = 2048
) -> Observed:
    return ContractClient(endpoint, family, plan, CONVERSATIONS, max_tokens).observe()


def test_what_answers_itself_says_more_than_any_list(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    paths = {"/load": {"get": {}, "parameters": []}, "/tokenize": {"post": {}}}
    pages = {"GET /openapi.json": {"paths": paths}, "GET /v1/models": {"data": []}}
    observed = observe(serves(pages).endpoint(), qwen, plan)
    assert observed.listed
    assert observed.routes == {"/load": {"GET"}, "/v1/models": {"GET"}}


@pytest.mark.parametrize("page", [None, "<html>", {"paths": None}, ["paths"]])
def test_a_server_that_lists_nothing_is_asked_route_by_route(
    page: Any, serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    pages = {"GET /openapi.json": page, "GET /health": {}, "GET /metrics": METRICS}
    observed = observe(serves(pages).endpoint(), qwen, plan)
    assert not observed.listed
    assert observed.routes == {"/health": {"GET"}, "/metrics": {"GET"}}
    assert observed.metrics == {"vllm:a": contracts_types.Metric("gauge", ())}


def test_answers_and_refusals_come_back_as_they_were_sent(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    server = serves({"POST /v1/chat/completions": EVENTS, "GET /version": {"version": "1"}})
    observed = observe(server.endpoint(), qwen, plan, max_tokens=7)
    by_name = {reply.name: reply for reply in (*observed.answers, *observed.refusals)}
    chat = by_name["streamed chat"]
    assert (chat.status, chat.kind) == (200, "text/event-stream")
    assert chat.bodies == ({"choices": [{"delta": {"role": "assistant"}}]},)
    assert by_name["version"].bodies == ({"version": "1"},)
    assert (by_name["completion"].status, by_name["completion"].bodies) == (
        404, ({"detail": "Not Found"},),
    )  # fmt: skip
    assert observed.not_asked == {}
    sent = b"\n".join(data for _, _, data in server.asked)
    assert b'"max_tokens":7,' in sent
    assert b'"max_tokens":256,' not in sent


def test_keys_are_wrong_only_where_there_is_a_right_one(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    server = serves({})
    observe(server.endpoint(), qwen, plan)
    keys = [key for _, key, _ in server.asked]
    assert {key: keys.count(key) for key in {*keys} - {"Bearer right"}} == {
        "Bearer no-such-key": 1, None: 1,
    }  # fmt: skip
    open_to_all = serves({})
    observed = observe(open_to_all.endpoint(None), qwen, plan)
    assert {key for _, key, _ in open_to_all.asked} == {None}
    assert set(observed.not_asked) == {"wrong key", "no key"}


def test_what_the_family_cannot_have_is_not_asked(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    silent = qwen.model_copy(update={"tools": None})
    only = [answer for answer in plan.answers if "tool" in (answer.conversation or "")]
    observed = observe(
        serves({}).endpoint(), silent, plan.model_copy(update={"answers": tuple(only)})
    )
    assert observed.not_asked["chat"] == "qwen3.5 calls no tools"
    assert observed.answers == ()


def test_a_server_that_is_not_there_says_nothing(qwen: Family, plan: ContractPlan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    observed = observe(Endpoint(f"http://127.0.0.1:{port}/v1", "m"), qwen, plan)
    assert (observed.routes, observed.listed, observed.metrics) == ({}, False, None)
    assert {reply.status for reply in (*observed.answers, *observed.refusals)} == {None}
    assert "ConnectError" in observed.answers[0].text
