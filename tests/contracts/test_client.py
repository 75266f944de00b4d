"""Every request is sent once, and a server without answers does not crash the client."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer, Text

from pytest_vllm_gates.catalog import conversation
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.contracts.client import ContractClient
from pytest_vllm_gates.contracts.types import Metric, load

if TYPE_CHECKING:
    from servers.scripted import ServerAnswer, ServerRequest

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.contracts.types import ContractPlan, Observed

CONVERSATIONS = conversation.load_all(Path("/nowhere"))
EVENTS = 'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n: still here\n\ndata: [DONE]\n\n'
METRICS = "# TYPE vllm:a gauge\nvllm:a 1.0\n"


class PageServer(ScriptedServer):
    """Answers `METHOD /path` with its page, a text or JSON, and all other requests with 404."""

    def __init__(self, pages: dict[str, Any]) -> None:
        super().__init__()
        self.pages = pages

    @property
    def endpoint(self) -> Endpoint:
        return replace(super().endpoint, api_key="right")

    def answer_to(self, request: ServerRequest) -> ServerAnswer:
        page = self.pages.get(f"{request.method} {request.path}")
        if page is None:
            return super().answer_to(request)
        kind = "text/event-stream; charset=utf-8" if page == EVENTS else "application/json"
        return 200, Text(page if isinstance(page, str) else json.dumps(page), kind)


Serves = Callable[[dict[str, Any]], PageServer]


@pytest.fixture
def serves() -> Iterator[Serves]:
    """Start servers that end with the test."""
    with contextlib.ExitStack() as servers:
        yield lambda pages: servers.enter_context(running(PageServer(pages)))


def keys_seen(server: PageServer) -> list[str | None]:
    return [request.headers.get("Authorization") for request in server.requests_seen]


@pytest.fixture
def plan() -> ContractPlan:
    return load()


def observe(
    endpoint: Endpoint, family: Family, plan: ContractPlan, max_tokens: int = 2048
) -> Observed:
    return ContractClient(endpoint, family, plan, CONVERSATIONS, max_tokens).observe()


def test_a_probe_of_a_route_overrides_the_list(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    paths = {"/load": {"get": {}, "parameters": []}, "/tokenize": {"post": {}}}
    pages = {"GET /openapi.json": {"paths": paths}, "GET /v1/models": {"data": []}}
    observed = observe(serves(pages).endpoint, qwen, plan)
    assert observed.listed
    assert observed.routes == {"/load": {"GET"}, "/v1/models": {"GET"}}


@pytest.mark.parametrize("page", [None, "<html>", {"paths": None}, ["paths"]])
def test_without_a_list_each_route_is_probed(
    page: Any, serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    pages = {"GET /openapi.json": page, "GET /health": {}, "GET /metrics": METRICS}
    observed = observe(serves(pages).endpoint, qwen, plan)
    assert not observed.listed
    assert observed.routes == {"/health": {"GET"}, "/metrics": {"GET"}}
    assert observed.metrics == {"vllm:a": Metric("gauge", ())}


def test_replies_are_in_the_order_of_the_plan(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    server = serves({"POST /v1/chat/completions": EVENTS, "GET /version": {"version": "1"}})
    observed = observe(server.endpoint, qwen, plan, max_tokens=7)
    by_name = {reply.name: reply for reply in (*observed.answers, *observed.refusals)}
    chat = by_name["streamed chat"]
    assert (chat.status, chat.kind) == (200, "text/event-stream")
    assert chat.bodies == ({"choices": [{"delta": {"role": "assistant"}}]},)
    assert by_name["version"].bodies == ({"version": "1"},)
    assert (by_name["completion"].status, by_name["completion"].bodies) == (
        404, ({"detail": "Not Found"},),
    )  # fmt: skip
    assert observed.not_asked == {}
    sent_bytes = b"\n".join(request.data for request in server.requests_seen)
    assert b'"max_tokens":7,' in sent_bytes
    assert b'"max_tokens":256,' not in sent_bytes


def test_wrong_keys_are_sent_only_to_servers_with_a_key(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    server = serves({})
    observe(server.endpoint, qwen, plan)
    keys = keys_seen(server)
    keyed = [request for request in plan.http if request.needs_key]
    assert {key: keys.count(key) for key in {*keys} - {"Bearer right"}} == {
        "Bearer no-such-key": 1, None: 2, "right": 1, "bearer right": 1,
        "Basic dXNlcjpyaWdodA==": 1,
    }  # fmt: skip
    open_to_all = serves({})
    observed = observe(replace(open_to_all.endpoint, api_key=None), qwen, plan)
    assert set(keys_seen(open_to_all)) == {None}
    names = {request.name for request in keyed}
    assert set(observed.not_asked) == {"wrong key", "no key", *names}


def test_requests_a_family_cannot_have_are_not_sent(
    serves: Serves, qwen: Family, plan: ContractPlan
) -> None:
    silent = qwen.model_copy(update={"tools": None})
    only = [answer for answer in plan.answers if "tool" in (answer.conversation or "")]
    observed = observe(
        serves({}).endpoint, silent, plan.model_copy(update={"answers": tuple(only)})
    )
    assert observed.not_asked["chat"] == "qwen3.5 calls no tools"
    assert observed.answers == ()


def test_a_server_that_is_down_has_no_replies(qwen: Family, plan: ContractPlan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    observed = observe(Endpoint(f"http://127.0.0.1:{port}/v1", "m"), qwen, plan)
    assert (observed.routes, observed.listed, observed.metrics) == ({}, False, None)
    assert {reply.status for reply in (*observed.answers, *observed.refusals)} == {None}
    assert "ConnectError" in observed.answers[0].text
