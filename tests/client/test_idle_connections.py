"""Requests never use a connection that the server is closing."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import httpx2 as httpx
import openai
import pytest
from load.generator.planned import planned_requests
from servers import running
from servers.idle import IdleClosingServer

from pytest_vllm_gates.client import http
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.load.generator.measure import measure
from pytest_vllm_gates.load.generator.parse import answered
from pytest_vllm_gates.load.types import ALONE, Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.catalog.family import Family

IDLE_S, JITTER_S = 0.05, 0.02
"""Those of vLLM are 5 s; benchmarks/idle_connections.py sends 2,000 requests at that scale."""
CLIENTS, EACH = 20, 10
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1}


def failures(ask: Callable[[], object]) -> int:
    """Return how many requests fail of many that follow one another as idle connections close."""
    failed: list[str] = []

    def one_after_the_other(number: int) -> None:
        for turn in range(EACH):
            time.sleep(IDLE_S + JITTER_S * (number * EACH + turn) / (CLIENTS * EACH))
            try:
                ask()
            except (httpx.HTTPError, openai.OpenAIError) as error:
                failed.append(type(error).__name__)

    threads = [threading.Thread(target=one_after_the_other, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return len(failed)


def test_client_that_keeps_connections_meets_closed_ones() -> None:
    """The race exists: without it, the tests below would prove nothing."""
    with running(IdleClosingServer(IDLE_S, JITTER_S)) as server, contextlib.ExitStack() as stack:
        own = threading.local()
        url = server.endpoint.root_url

        def ask() -> None:
            if not hasattr(own, "client"):
                own.client = stack.enter_context(httpx.Client(base_url=url, trust_env=False))
            own.client.post("/v1/chat/completions", json=BODY)

        assert failures(ask) > 0
        assert server.lost > 0


def test_plain_client_does_not_reuse_closed_connections() -> None:
    with (
        running(IdleClosingServer(IDLE_S, JITTER_S)) as server,
        http.client(server.endpoint) as client,
    ):
        assert failures(lambda: client.post("/v1/chat/completions", json=BODY)) == 0
        assert server.lost == 0
        assert server.connections == server.requests == CLIENTS * EACH


def test_chat_client_does_not_reuse_closed_connections(qwen: Family) -> None:
    with running(IdleClosingServer(IDLE_S, JITTER_S)) as server:
        chat = Chat(server.endpoint, qwen)
        assert failures(lambda: chat.ask(BODY)) == 0
        assert server.lost == 0
        chat.client.close()


@pytest.mark.parametrize("workers", [ALONE, Workers(2)], ids=["alone", "locust"])
@pytest.mark.parametrize("users", [None, CLIENTS], ids=["open", "closed"])
def test_measuring_client_does_not_reuse_closed_connections(
    workers: Workers, users: int | None
) -> None:
    """At their times, the requests are as far apart as a connection may be idle."""
    every_s = None if users else (IDLE_S + JITTER_S / 2) / CLIENTS
    body = b'{"stream": true}'
    with running(IdleClosingServer(IDLE_S, JITTER_S)) as server:
        requests = planned_requests(CLIENTS * EACH, every_s, body=body)
        driven = measure(server.endpoint, requests, users, workers=workers)
        assert [raw.error for raw in driven.raws] == [""] * CLIENTS * EACH
        assert [answered(raw).error for raw in driven.raws] == [""] * CLIENTS * EACH
        assert server.lost == 0
        assert server.connections == CLIENTS * EACH
