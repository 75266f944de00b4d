"""A shadow before real vLLM: a right canary breaks nothing, and one that leaks is rejected."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest
from faults.messages import Message, as_message
from faults.proxy import Proxy
from faults.upstream import Upstream
from shadow.shadow_servers import CHAT, WAIT_S, WEATHER, shadow

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.served import Served
    from pytest_vllm_gates.client.endpoint import Endpoint

pytestmark = pytest.mark.real

KEY = "SHADOW_CANARY_KEY"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STREAMED: dict[str, Any] = {"stream": True}
BODIES: list[dict[str, Any]] = [
    {},
    STREAMED,
    {"stream": True, "stream_options": {"include_usage": True}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"max_tokens": 5},
    {"stop": ["the"], "chat_template_kwargs": {"enable_thinking": False}},
    {"tools": [WEATHER], "tool_choice": "required", "stream": True},
    {"tools": [WEATHER]},
    {
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA},
        },
        "chat_template_kwargs": {"enable_thinking": False},
    },
    {"n": 2, "temperature": 0.7, "stream": True},
]  # fmt: skip

FIGURES = {"ttft_s", "tokens", "itl_s"}
MOST_ROUNDS = 10


def send(port: int, endpoint: Endpoint, more: dict[str, Any]) -> None:
    """Send one chat, and read its answer."""
    body = {
        "model": endpoint.model, "temperature": 0, "max_tokens": 60,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        **more,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        sent = {"Content-Type": "application/json", **endpoint.request_headers()}
        connection.request("POST", CHAT, json.dumps(body).encode(), sent)
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
    finally:
        connection.close()


def figures(document: dict[str, Any]) -> set[str]:
    return {figure["name"] for figure in document["figures"]}


@as_message
def leaks_a_marker(message: Message) -> None:
    if message.content:
        message.content += "</think>"


@pytest.mark.parametrize("leaks", [False, True])
def test_right_canary_breaks_nothing_and_one_that_leaks_is_rejected(
    leaks: bool, shared: Served, tmp_path: Path
) -> None:
    endpoint = shared.endpoint
    upstream = Upstream(endpoint.base_url, endpoint.api_key, endpoint.model)
    with Proxy(upstream, reply=leaks_a_marker if leaks else None) as canary:
        url = canary.base_url if leaks else endpoint.base_url
        env = {KEY: endpoint.api_key or "none"}
        options = ("--canary-key-env", KEY, "--model", "qwen3.5", "--redact-prompts", "keep")
        with shadow(endpoint.base_url, url, tmp_path, *options, env=env) as process:
            for more in BODIES:
                send(process.port, endpoint, more)
            document = process.until_pairs(len(BODIES))
            # A busy machine merges pieces, and an answer in few has no latency between tokens.
            for again in range(1, MOST_ROUNDS):
                if leaks or figures(document) >= FIGURES:
                    break
                send(process.port, endpoint, STREAMED)
                document = process.until_pairs(len(BODIES) + again)
    assert document["pairs"] >= len(BODIES)
    failing = {kind["name"]: kind["last"] for kind in document["kinds"] if kind["canary_only"]}
    on_stable = [k["name"] for k in document["kinds"] if k["stable_only"] or k["both"]]
    assert on_stable == []
    if leaks:
        assert document["promotion"] == "REJECT"
        assert "content contains the marker '</think>'" in failing["markers"]
        assert [*(tmp_path / "incidents").iterdir()]
    else:
        assert document["promotion"] == "HOLD"
        assert failing == {}
        assert figures(document) >= FIGURES
