"""A prompt is requested from every route that reports it, and from no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts import served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from servers.scripted import ServerAnswer

    Answers = Mapping[str, ServerAnswer]

USER = {"role": "user", "content": "Hello."}
PLAIN: dict[str, Any] = {"messages": [USER]}
OLD: dict[str, Any] = {
    "messages": [USER, {"role": "assistant", "reasoning_content": "Hm.", "content": "Hi."}, USER]
}
ANSWERS: Answers = {
    http.TOKENIZE: (200, {"tokens": [1, 2], "max_model_len": 100}),
    http.RENDER: (200, {"token_ids": [3, 4]}),
    http.CHAT: (200, {"prompt_token_ids": [5, 6]}),
}
GONE = (404, {"detail": "Not Found"})


def every(answers: Answers, body: dict[str, Any], *, chats: bool = True) -> dict[str, Any]:
    with running(ScriptedServer(lambda path, _: answers[path])) as server:
        return served.served_prompts(server.endpoint, body, chats=chats)


def test_each_endpoint_reports_its_own_prompt() -> None:
    with running(ScriptedServer(lambda path, _: ANSWERS[path])) as server:
        prompts = served.served_prompts(server.endpoint, PLAIN, chats=True)
    assert prompts == {"/tokenize": (1, 2), "the chat API": (3, 4), "a chat": (5, 6)}
    bodies = {request.path: request.body for request in server.requests_seen}
    assert len(bodies) == len(server.requests_seen)
    assert all(body["messages"] == [USER] and body["model"] == "alias" for body in bodies.values())
    chat = bodies[http.CHAT]
    assert (chat["max_tokens"], chat["return_token_ids"]) == (1, True)


def test_a_renderer_gets_no_chat() -> None:
    assert [*every(ANSWERS, PLAIN, chats=False)] == ["/tokenize", "the chat API"]


@pytest.mark.parametrize("body", [OLD, {**PLAIN, "reasoning_effort": "low"}], ids=["old", "effort"])
def test_tokenize_gets_only_requests_it_can_read(body: dict[str, Any]) -> None:
    assert [*every(ANSWERS, body)] == ["the chat API", "a chat"]


def test_a_prompt_without_room_is_only_tokenized() -> None:
    full = {**ANSWERS, http.TOKENIZE: (200, {"tokens": [1, 2], "max_model_len": 2})}
    assert every(full, PLAIN) == {"/tokenize": (1, 2)}


def test_a_server_without_render_reports_by_chats() -> None:
    assert [*every({**ANSWERS, http.RENDER: GONE}, OLD)] == ["a chat"]


def test_a_chat_without_prompt_ids_is_left_out() -> None:
    silent = {**ANSWERS, http.RENDER: GONE, http.CHAT: (200, {"choices": []})}
    assert every(silent, OLD) == {}


def test_every_endpoint_can_refuse() -> None:
    refused = (400, {"error": {"message": "no such role"}})
    prompts = every(dict.fromkeys(ANSWERS, refused), PLAIN)
    assert [*prompts] == ["/tokenize"]
    prompts = every(dict.fromkeys(ANSWERS, refused), OLD)
    assert [*prompts] == ["the chat API", "a chat"]
    assert all(
        isinstance(prompt, Refused) and "no such role" in str(prompt) for prompt in prompts.values()
    )


def test_a_server_error_is_not_a_refusal() -> None:
    broken = {**ANSWERS, http.CHAT: (500, {"error": {"message": "dead"}})}
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        every(broken, PLAIN)
