"""Responses to requests with an id are kept as received, from several threads at once."""

from __future__ import annotations

import contextlib
import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import openai
import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.client import http, recorder as recording
from pytest_vllm_gates.client.answer import Recording
from pytest_vllm_gates.client.bounds import Budget
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.client.recorder import HEADER, Recorder
from pytest_vllm_gates.client.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family

ASKED = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    with running(
        ScriptedModel(lambda body: Generation(str(body["messages"][-1]["content"])))
    ) as server:
        yield server


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(verify=False)


def test_a_stream_is_kept_as_it_arrived(
    server: ScriptedModel, recorder: Recorder, qwen: Family
) -> None:
    chat = Chat(server.endpoint, qwen, recorder)
    assert chat.stream(ASKED, {HEADER: "one"}).content == "Hello"
    recording = recorder.take("one")
    assert recording.kind == "text/event-stream"
    assert recording.body.startswith(b"data: {")
    assert recording.body.endswith(b"data: [DONE]\n\n")
    times = [at for at, _ in recording.pieces]
    assert times == sorted(times)
    assert times[0] > 0
    chat.client.close()


def test_a_recording_is_taken_once(server: ScriptedModel, recorder: Recorder, qwen: Family) -> None:
    chat = Chat(server.endpoint, qwen, recorder)
    chat.stream(ASKED, {HEADER: "one"})
    assert recorder.take("one") != Recording()
    assert recorder.take("one") == Recording()
    assert recorder.take("another") == Recording()
    chat.client.close()


def test_a_request_without_an_id_is_not_recorded(
    server: ScriptedModel, recorder: Recorder, qwen: Family
) -> None:
    chat = Chat(server.endpoint, qwen, recorder)
    assert chat.ask(ASKED).content == "Hello"
    assert recorder._recordings == {}
    chat.client.close()


def test_a_stream_left_early_is_kept_as_far_as_it_came(
    server: ScriptedModel, recorder: Recorder
) -> None:
    with httpx.Client(transport=recorder) as client:
        url = f"{server.endpoint.base_url}/chat/completions"
        body = {**ASKED, "stream": True}
        with client.stream("POST", url, json=body, headers={HEADER: "one"}) as reply:
            next(reply.iter_bytes(16))
        recording = recorder.take("one")
    assert len(recording.pieces) == 1


def test_a_stream_left_early_may_be_read_to_its_end(server: ScriptedModel) -> None:
    recorder = Recorder(verify=False, to_the_end=True)
    with httpx.Client(transport=recorder) as client:
        url = f"{server.endpoint.base_url}/chat/completions"
        body = {**ASKED, "stream": True}
        with client.stream("POST", url, json=body, headers={HEADER: "one"}) as reply:
            next(reply.iter_bytes(16))
        assert recorder.take("one").body.endswith(b"data: [DONE]\n\n")


def test_threads_do_not_mix(server: ScriptedModel, recorder: Recorder, qwen: Family) -> None:
    chat = Chat(server.endpoint, qwen, recorder)
    words = [f"word{number}" for number in range(16)]

    def ask(word: str) -> bytes:
        body = {"messages": [{"role": "user", "content": word}]}
        chat.stream(body, {HEADER: word})
        return recorder.take(word).body

    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(ask, words))
    for word, body in zip(words, bodies, strict=True):
        assert f'"{word}"'.encode() in body
        assert body.count(b'"word') == 1
    chat.client.close()


def test_requests_and_responses_are_on_the_tape(server: ScriptedModel, qwen: Family) -> None:
    tape = Tape()
    endpoint = replace(server.endpoint, tape=tape)
    chat = Chat(endpoint, qwen)
    chat.ask(ASKED)
    chat.stream(ASKED, {HEADER: "one"})
    chat.client.close()
    first_send, streamed = tape.of()
    assert (first_send.method, first_send.path, first_send.status) == (
        "POST",
        "/v1/chat/completions",
        200,
    )
    assert json.loads(first_send.body)["messages"] == ASKED["messages"]
    assert json.loads(first_send.answer)["choices"][0]["message"]["content"] == "Hello"
    assert streamed.answer.endswith(b"data: [DONE]\n\n")
    assert streamed.response_headers["content-type"] == "text/event-stream"
    assert first_send.headers["authorization"] == "[redacted]"


def test_sends_of_a_named_part_are_kept_and_counted_separately(
    server: ScriptedModel, qwen: Family
) -> None:
    tape = Tape()
    endpoint = replace(server.endpoint, tape=tape)
    apart = replace(endpoint, tape_part="a later test")
    tape.turn_to("a test")
    for each in (endpoint, apart, apart):
        chat = Chat(each, qwen)
        chat.ask(ASKED)
        chat.client.close()
    assert (tape.count, tape.ahead) == (1, {"a later test": 2})
    assert (len(tape.of("a test")), len(tape.of("a later test"))) == (1, 2)


def test_a_request_without_a_response_is_on_the_tape(qwen: Family) -> None:
    tape = Tape()
    chat = Chat(Endpoint("http://127.0.0.1:9/v1", "alias", tape=tape), qwen)
    with pytest.raises(openai.APIConnectionError):
        chat.ask(ASKED)
    chat.client.close()
    (send,) = tape.of()
    assert (send.status, send.error.partition(":")[0]) == (None, "ConnectError")


def test_polled_paths_are_not_on_the_tape(server: ScriptedModel) -> None:
    tape = Tape()
    with http.client(replace(server.endpoint, tape=tape)) as client:
        for path in ("/health", "/metrics", "/version"):
            client.get(path)
    assert [send.path for send in tape.of()] == ["/version"]


def test_paths_are_below_the_servers_root(server: ScriptedModel) -> None:
    tape = Tape()
    url = server.endpoint.base_url.replace("/v1", "/behind/a/gateway/v1")
    with contextlib.suppress(httpx.HTTPError):  # it knows no such path
        http.post(Endpoint(url, "alias", tape=tape), "/tokenize", {})
    assert [send.path for send in tape.of()] == ["/tokenize"]


def test_a_sent_body_is_let_go_of(server: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have megabytes, and a thread may send nothing more for long."""
    budgets: list[weakref.ref[Budget]] = []

    def made(*arguments: Any) -> Budget:
        budget = Budget(*arguments)
        budgets.append(weakref.ref(budget))
        return budget

    monkeypatch.setattr(recording, "Budget", made)
    with http.client(server.endpoint) as client:
        assert client.post(http.CHAT, json=ASKED).is_success
        gc.collect()
        assert [budget() for budget in budgets] == [None]
