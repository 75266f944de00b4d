"""A server that already runs is attached to and not stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.server import attach

if TYPE_CHECKING:
    from servers.scripted import ServerAnswer

    from conftest import Fakes


def test_running_server_is_attached_and_not_stopped(fakes: Fakes) -> None:
    server = fakes(names=("theirs", "other"), key="key")
    boot = attach.attach(Endpoint(server.base_url, "", "key"), 5.0)
    assert boot.failure is None
    assert boot.endpoint is not None
    assert boot.endpoint.model == "theirs"
    assert boot.evidence == {"base_url": server.base_url, "served": {"id": "theirs"}}
    assert server.chats == 1


def test_start_of_a_server_that_runs_already_is_not_known(fakes: Fakes) -> None:
    """The seconds until it lists its models are not its boot time."""
    times = attach.attach(Endpoint(fakes(key="key").base_url, "", "key"), 5.0).times
    assert times is not None
    assert (times.health_s, times.first_chat_s) == (None, None)
    assert times.first_token_s is not None


@pytest.mark.parametrize(
    ("faults", "key", "message"),
    [
        ("", "wrong", "the server refused the API key (401 on /v1/models)"),
        ("no-openai", "key", "is this an OpenAI-compatible server?"),
        ("chat-500", "key", "the first chat was answered 500"),
    ],
)
def test_running_server_that_does_not_serve_is_reported(
    fakes: Fakes, faults: str, key: str, message: str
) -> None:
    server = fakes(faults, key="key")
    boot = attach.attach(Endpoint(server.base_url, "", key), 5.0)
    assert boot.failure is not None
    assert boot.failure.what.startswith(f"{server.base_url}: ")
    assert message in boot.failure.what


def test_server_without_models_is_reported(fakes: Fakes) -> None:
    boot = attach.attach(Endpoint(fakes(names=()).base_url, ""), 5.0)
    assert boot.failure is not None
    assert "the server lists no model" in boot.failure.what


def test_a_lora_adapter_that_is_listed_first_is_not_taken_for_the_model() -> None:
    cards = [{"id": "sailor", "parent": "base"}, {"id": "base", "parent": None}]
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}

    def answer(path: str, _: Any) -> ServerAnswer:
        return 200, {"data": cards} if path == "/v1/models" else [{"choices": [choice]}]

    with running(ScriptedServer(answer)) as server:
        boot = attach.attach(Endpoint(server.endpoint.base_url, ""), 5.0)
    assert boot.endpoint is not None
    assert boot.endpoint.model == "base"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://"])
def test_unreachable_server_is_reported(url: str) -> None:
    boot = attach.attach(Endpoint(url.rstrip("/"), ""), 5.0)
    assert boot.failure is not None
    explanation = boot.failure.explain()
    assert explanation.startswith(f"no server answers at {url.rstrip('/')}: ")
    assert f"next: curl -v {url.rstrip('/')}/models" in explanation
    assert boot.failure.of_infrastructure
