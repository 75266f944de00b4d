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

pytestmark = pytest.mark.real

KEY = "SHADOW_CANARY_KEY"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BODIES: list[dict[str, Any]] = [
    {},
    {"stream": True},
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

FEW_PIECES = 4


def read_in_pieces(port: int, body: bytes, headers: dict[str, str]) -> tuple[int, list[bytes]]:
    """Send one chat; return the status, and the answer in the pieces in which it arrived."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        sent = {"Content-Type": "application/json", **headers}
        connection.request("POST", CHAT, body, sent)
        reply = connection.getresponse()
        return reply.status, [*iter(reply.read1, b"")]
    finally:
        connection.close()


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
            pieces = 0
            for more in BODIES:
                body = {
                    "model": endpoint.model, "temperature": 0, "max_tokens": 60,
                    "messages": [{"role": "user", "content": "What is the capital of France?"}],
                    **more,
                }  # fmt: skip
                data, headers = json.dumps(body).encode(), endpoint.request_headers()
                status, came = read_in_pieces(process.port, data, headers)
                assert status == 200, came
                pieces = max(pieces, len(came))
            document = process.until_pairs(len(BODIES))
    assert document["pairs"] == len(BODIES)
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
        names = {figure["name"] for figure in document["figures"]}
        assert names >= {"ttft_s", "tokens"}
        # A busy machine merges pieces, and an answer in few pieces has no latency between tokens.
        assert "itl_s" in names or pieces <= FEW_PIECES, pieces
