"""A prompt is asked for by every way that tells it, and by no way that cannot."""

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


def test_each_way_tells_its_own() -> None:
    with running(ScriptedServer(lambda path, _: ANSWERS[path])) as server:
        found = served.served_prompts(server.endpoint, PLAIN, chats=True)
    assert found == {"/tokenize": (1, 2), "the chat API": (3, 4), "a chat": (5, 6)}
    bodies = {request.path: request.body for request in server.requests_seen}
    assert len(bodies) == len(server.requests_seen)
    assert all(body["messages"] == [USER] and body["model"] == "alias" for body in bodies.values())
    chat = bodies[http.CHAT]
    assert (chat["max_tokens"], chat["return_token_ids"]) == (1, True)


def test_a_renderer_is_asked_for_no_chat() -> None:
    assert [*every(ANSWERS, PLAIN, chats=False)] == ["/tokenize", "the chat API"]


@pytest.mark.parametrize("body", [OLD, {**PLAIN, "reasoning_effort": "low"}], ids=["old", "effort"])
def test_tokenize_is_not_asked_what_it_does_not_read(body: dict[str, Any]) -> None:
    assert [*every(ANSWERS, body)] == ["the chat API", "a chat"]


def test_a_prompt_that_leaves_no_room_is_tokenized_alone() -> None:
    full = {**ANSWERS, http.TOKENIZE: (200, {"tokens": [1, 2], "max_model_len": 2})}
    assert every(full, PLAIN) == {"/tokenize": (1, 2)}


def test_a_server_that_hides_its_renderer_tells_by_chats() -> None:
    assert [*every({**ANSWERS, http.RENDER: GONE}, OLD)] == ["a chat"]


def test_a_server_that_tells_nothing_of_a_chats_prompt_is_not_judged_by_it() -> None:
    silent = {**ANSWERS, http.RENDER: GONE, http.CHAT: (200, {"choices": []})}
    assert every(silent, OLD) == {}


def test_a_refusal_is_one_by_every_way() -> None:
    refused = (400, {"error": {"message": "no such role"}})
    found = every(dict.fromkeys(ANSWERS, refused), PLAIN)
    assert [*found] == ["/tokenize"]
    found = every(dict.fromkeys(ANSWERS, refused), OLD)
    assert [*found] == ["the chat API", "a chat"]
    assert all(
        isinstance(entry, Refused) and "no such role" in str(entry) for entry in found.values()
    )


def test_a_server_that_breaks_is_no_refusal() -> None:
    broken = {**ANSWERS, http.CHAT: (500, {"error": {"message": "dead"}})}
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        every(broken, PLAIN)
