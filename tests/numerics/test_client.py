"""A server's answer about the scores of a chat, in the format of vLLM 0.32.0."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client.http import CHAT
from pytest_vllm_gates.numerics.client import served_chat_scores
from pytest_vllm_gates.numerics.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER = {
    "prompt_token_ids": [1, 7, 2],
    "prompt_logprobs": [
        None,
        {"7": {"logprob": -0.5, "rank": 1}},
        {"2": {"logprob": -4.0, "rank": 3}, "9": {"logprob": -0.1, "rank": 1}},
    ],
    "choices": [
        {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -0.01}, {"logprob": -0.02}]}}
    ],
}


def scores(answer: Callable[[str, Any], tuple[int, Any]]) -> Scores:
    server = ScriptedServer(answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return served_chat_scores(server.endpoint, {"messages": []}, 2)
    finally:
        server.shutdown()
        server.server_close()


def test_a_chat_is_scored_with_its_prompt() -> None:
    asked: list[Any] = []

    def answer(path: str, body: Any) -> tuple[int, Any]:
        asked.append((path, body))
        return 200, ANSWER

    assert scores(answer) == Scores((1, 7, 2), (-0.5, -4.0), (5, 6), (-0.01, -0.02))
    ((path, body),) = asked
    assert path == CHAT
    assert (body["prompt_logprobs"], body["logprobs"], body["temperature"]) == (1, True, 0)
    assert (body["max_tokens"], body["return_token_ids"]) == (2, True)


def test_a_refusal_is_raised() -> None:
    with pytest.raises(httpx.HTTPStatusError):
        scores(lambda *_: (400, {"error": {"message": "no"}}))
