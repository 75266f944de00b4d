"""A server serves when it is healthy, is ours, and has answered one real chat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from servers import stub

from pytest_vllm_gates.client import http, ready as client_ready
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.server import ready

Fakes = Callable[..., stub.StubServer]


def endpoint(server: stub.StubServer, model: str = "m", key: str | None = None) -> Endpoint:
    return Endpoint(server.base_url, model, key)


def test_a_server_that_lists_our_alias_is_healthy(fakes: Fakes) -> None:
    server = fakes(names=("qwen3.5", "alias"), key="key")
    assert ready.healthy(endpoint(server, "alias", "key"))


def test_another_server_on_the_port_is_not_ours(fakes: Fakes) -> None:
    server = fakes(names=("qwen3.5", "another-alias"))
    assert not ready.healthy(endpoint(server, "alias"))


def test_a_server_that_does_not_know_our_key_is_not_ours(fakes: Fakes) -> None:
    assert not ready.healthy(endpoint(fakes(key="theirs"), "m", "ours"))


def test_non_http_server_is_not_healthy(fakes: Fakes) -> None:
    assert not ready.healthy(endpoint(fakes("no-openai")))
    assert not ready.healthy(Endpoint("http://127.0.0.1:9/v1", "m"))


def test_refused_key_is_reported(fakes: Fakes) -> None:
    with (
        http.client(endpoint(fakes(key="theirs"))) as client,
        pytest.raises(client_ready.NotServing, match="refused the API key"),
    ):
        client_ready.served_models(client)


def test_malformed_model_list_is_reported(fakes: Fakes) -> None:
    with (
        http.client(endpoint(fakes("no-openai"))) as client,
        pytest.raises(
            client_ready.NotServing, match=r"answered 200 with .*OpenAI-compatible server\?"
        ),
    ):
        client_ready.served_models(client)


@pytest.mark.parametrize("faults", ["", "spaces"])
def test_answered_chat_is_timed(fakes: Fakes, faults: str) -> None:
    chat = ready.first_chat(endpoint(fakes(faults)), 5.0)
    assert 0 < chat.first_token_s <= chat.total_s < 5


def test_chat_without_done_is_the_streaming_gates_to_judge(fakes: Fakes) -> None:
    """Before, the boot failed with: the server did not boot; export OPENAI_API_KEY."""
    assert ready.first_chat(endpoint(fakes("no-done")), 5.0).first_token_s > 0


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("chat-404", "the first chat was answered 404: .*no chat today"),
        ("chat-500", "the first chat was answered 500: .*no chat today"),
        ("chat-empty", "the first chat ended without a single token"),
        ("chat-breaks", "the first chat broke off"),
        ("chat-ends-early", "the first chat broke off: .*, without finish_reason and \\[DONE\\]"),
        ("chat-errs", "the first chat ended in an error: .*EngineCore encountered"),
        ("chat-errs,spaces", "the first chat ended in an error: .*EngineCore encountered"),
        ("chat-babbles", "the first chat returned invalid JSON: '{not json'"),
        ("chat-hangs", r"the first chat returned nothing for 0\.3 s while /health answered"),
    ],
)
def test_unanswered_chat_is_reported(fakes: Fakes, faults: str, message: str) -> None:
    with pytest.raises(client_ready.NotServing, match=message):
        ready.first_chat(endpoint(fakes(faults)), 0.3 if r"0\.3" in message else 5.0)


def test_endless_chat_is_reported(fakes: Fakes) -> None:
    # Longer than any pause of a busy machine: a stopped chat gets another message.
    with pytest.raises(client_ready.NotServing, match="the first chat did not end within 2 s"):
        ready.first_chat(endpoint(fakes("chat-never-ends")), 2.0)


def test_absent_server_is_reported() -> None:
    with pytest.raises(client_ready.NotServing, match="the first chat broke off"):
        ready.first_chat(Endpoint("http://127.0.0.1:9/v1", "m"), 5.0)
