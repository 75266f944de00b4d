"""Samples and log-probabilities are read from a server's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client.form import Malformed
from pytest_vllm_gates.sampling.client import BLOCK, RefusedRequest, SamplingClient

if TYPE_CHECKING:
    from servers.scripted import Body, ServerAnswer

SIZE = 300
PROMPT = (4, 5)


def choice(body: Body, known: dict[int, float]) -> dict[str, Any]:
    top = {f"token_id:{token}": log for token, log in known.items()}
    return {
        "token_ids": [7],
        "prompt_token_ids": [1, *body["prompt"]] if isinstance(body["prompt"], list) else [1, 2],
        "finish_reason": "length",
        "logprobs": {"token_logprobs": [-0.5], "top_logprobs": [top]},
    }


def vllm(path: str, body: Body) -> ServerAnswer:
    """Answer as vLLM does, with a vocabulary of 300 tokens."""
    if path == "/v1/chat/completions":
        return 200, {"choices": [], "usage": {"completion_tokens": 3}}
    wanted = body.get("logprob_token_ids") or [7]
    if max(wanted) >= SIZE or len(wanted) > BLOCK:
        return 400, {"error": {"message": "out-of-vocab"}}
    known = {token: -float(token) for token in wanted}
    return 200, {"choices": [choice(body, known)] * body.get("n", 1)}


def older(_: str, body: Body) -> ServerAnswer:
    """Answer as a server that does not know `logprob_token_ids`."""
    return 200, {"choices": [choice(body, {7: -0.5})]}


def test_samples_have_tokens_and_known_logprobs() -> None:
    with running(ScriptedServer(vllm)) as server:
        client = SamplingClient(server.endpoint)
        samples = client.complete(PROMPT, {"n": 3, "max_tokens": 1, "logprob_token_ids": [7, 9]})
    assert len(samples) == client.tokens == 3
    assert samples[0].tokens == (7,)
    assert samples[0].logprobs == (-0.5,)
    assert samples[0].known == ({7: -7.0, 9: -9.0},)
    assert samples[0].finish_reason == "length"


def test_a_small_vocabulary_is_read_to_its_end() -> None:
    with running(ScriptedServer(vllm)) as server:
        client = SamplingClient(server.endpoint)
        law = client.vocabulary(PROMPT)
        first = len(server.requests_seen)
        client.vocabulary(PROMPT)
        again = len(server.requests_seen) - first
    assert law is not None
    assert list(law.ids) == list(range(SIZE))
    assert again == -(-SIZE // BLOCK)


def test_a_server_that_returns_no_chosen_tokens_has_no_known_vocabulary() -> None:
    with running(ScriptedServer(older)) as server:
        client = SamplingClient(server.endpoint)
        assert client.vocabulary(PROMPT) is None
        assert client.scores(PROMPT, [3, 7]) == {7: -0.5}
        assert client.likeliest(PROMPT) == {7: -0.5}


def test_a_prompt_has_the_special_tokens_of_the_server() -> None:
    with running(ScriptedServer(vllm)) as server:
        assert SamplingClient(server.endpoint).token_ids("x") == [1, 2]


def test_each_text_has_its_prompt_and_the_likeliest_next_tokens() -> None:
    with running(ScriptedServer(vllm)) as server:
        outlooks = SamplingClient(server.endpoint).outlooks(["x", "y"])
    assert outlooks == [((1, 2), {7: -7.0})] * 2


def test_a_server_that_hides_log_probabilities_has_no_likeliest_tokens() -> None:
    def hides(path: str, body: Body) -> ServerAnswer:
        return (400, {"error": {"message": "no"}}) if "logprobs" in body else vllm(path, body)

    with running(ScriptedServer(hides)) as server:
        assert SamplingClient(server.endpoint).outlooks(["x"]) == [((1, 2), {})]


@pytest.mark.parametrize(
    ("status", "content", "error", "says"),
    [
        (422, {"detail": "no"}, RefusedRequest, "^422: .*no"),
        (500, {"detail": "no"}, httpx.HTTPStatusError, "500"),
        (200, {"choices": [{}]}, Malformed, "token_ids"),
    ],
)
def test_a_refusal_a_failure_and_another_form_are_distinguished(
    status: int, content: dict[str, Any], error: type[Exception], says: str
) -> None:
    with (
        running(ScriptedServer(lambda *_: (status, content))) as server,
        pytest.raises(error, match=says),
    ):
        SamplingClient(server.endpoint).complete(PROMPT, {})


def test_the_tokens_of_a_chat_are_counted() -> None:
    with running(ScriptedServer(vllm)) as server:
        client = SamplingClient(server.endpoint)
        client.chat({"messages": []})
    assert client.tokens == 3
