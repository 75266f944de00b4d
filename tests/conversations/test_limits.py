"""One question is repeated with pieces of its answer as stops and limits near its length."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.client.answer import Answer, Usage
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.conversations.checks import finish, stops
from pytest_vllm_gates.conversations.limits import LONGEST, STOPS, Pieces, limits, limits_in_a_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.family import Family

REASONING = "Two lines. No more."
CONTENT = "The sea is wide and never sleeps, it counts the secrets that it keeps."
BODY = {"messages": [{"role": "user", "content": "Write."}], "max_tokens": 300}


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    with running(ScriptedModel(lambda _: Generation(CONTENT, REASONING))) as server:
        yield server


@pytest.fixture
def chat(server: ScriptedModel, qwen: Family) -> Iterator[Chat]:
    chat = Chat(server.endpoint, qwen)
    yield chat
    chat.client.close()


def test_stops_are_pieces_of_the_answer(chat: Chat) -> None:
    stops_drawn = Pieces(chat, BODY).stops()
    assert 0 < len(stops_drawn) <= STOPS
    for stop in stops_drawn:
        assert 1 <= len(stop) == len(set(stop)) <= 3
        for text in stop:
            assert text in REASONING or text in CONTENT
            assert text.strip()
            assert len(text) <= LONGEST


def test_the_same_stops_come_every_time(chat: Chat) -> None:
    assert Pieces(chat, BODY).stops() == Pieces(chat, BODY).stops()


def test_stops_come_from_both_fields_and_several_at_once(chat: Chat) -> None:
    stops_drawn = Pieces(chat, BODY).stops()
    assert any(text in REASONING for stop in stops_drawn for text in stop)
    assert any(text in CONTENT for stop in stops_drawn for text in stop)
    assert any(len(stop) > 1 for stop in stops_drawn)


def test_a_stop_is_sent_with_the_request(chat: Chat, server: ScriptedModel) -> None:
    pieces = Pieces(chat, BODY)
    stopped, request = pieces.ask(["wide"])
    assert (stopped.content, stopped.stop_reason) == ("The sea is ", "wide")
    assert request == {**BODY, "stop": ["wide"]}
    assert server.chats_seen[-1]["stop"] == ["wide"]
    assert "stop" not in server.chats_seen[0]
    assert stops.cut_at_first(["wide"], stopped, pieces.plain) == []


def test_stops_are_sent_concurrently_and_answered_in_order(qwen: Family) -> None:
    company = threading.Barrier(2, timeout=10)

    def in_pairs(body: dict[str, Any]) -> Generation:
        if "stop" in body:
            company.wait()
        return Generation(CONTENT)

    with running(ScriptedModel(in_pairs)) as server:
        chat = Chat(server.endpoint, qwen)
        pieces = Pieces(chat, BODY, at_a_time=2)
        asked = pieces.ask_all()
        chat.client.close()
    assert [stop for stop, _, _ in asked] == pieces.stops()
    for stop, answer, request in asked:
        assert request == {**BODY, "stop": stop}
        assert answer.stop_reason in stop


def test_limits_are_below_at_and_above_the_length(chat: Chat) -> None:
    plain = chat.ask(BODY)
    assert plain.usage is not None
    length = plain.usage.completion_tokens
    thought = round(length / 2 * len(REASONING) / len(REASONING + CONTENT))
    answers = limits(chat, BODY, plain)
    assert [limited_answer.max_tokens for limited_answer in answers] == [
        limit
        for limit in (1, length // 2, length, length + 1, thought)
        for _ in ("whole", "streamed")
    ]
    assert [limited_answer.due for limited_answer in answers] == [
        *["length"] * 4,
        *["stop"] * 4,
        *["length"] * 2,
    ]
    assert {limited_answer.mode: limited_answer.plain for limited_answer in answers} == {
        "whole": plain,
        "streamed": chat.stream(BODY),
    }
    for answer in answers:
        assert list(finish.limit(answer.answer, answer.max_tokens)) == []
        assert list(finish.wrong_reason(answer.answer, answer.due)) == []
        assert answer.request["max_tokens"] == answer.max_tokens
    assert len({limited_answer.name for limited_answer in answers}) == len(answers)


def test_without_usage_there_are_no_limits(chat: Chat) -> None:
    assert limits(chat, BODY, Answer("", CONTENT, (), "stop", None)) == []


def test_an_answer_without_reasoning_is_not_cut_in_it(chat: Chat) -> None:
    plain = Answer("", CONTENT, (), "stop", Usage(3, 8))
    assert {limit.kind for limit in limits(chat, BODY, plain)} == {
        "one token", "half", "exact", "one more",
    }  # fmt: skip


def caller(body: Mapping[str, Any]) -> Generation:
    """Write five words and a call, if the question is for the time."""
    asks = "time" in body["messages"][0]["content"]
    calls: list[tuple[str, Any]] = [("get_time", {})] if asks else []
    return Generation("I look at the clock.", calls=calls)


def question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 300}


def test_the_first_call_that_comes_is_cut_before_its_end(qwen: Family) -> None:
    bodies = [question(text) for text in ("Hello.", "What is the time?", "The time again?")]
    with running(ScriptedModel(caller)) as server:
        chat = Chat(server.endpoint, qwen)
        whole = chat.ask(bodies[1])
        assert whole.usage is not None
        server.chats_seen.clear()
        answers = limits_in_a_call(chat, bodies)
        chat.client.close()
    texts = [seen["messages"][0]["content"] for seen in server.chats_seen]
    assert texts[:2] == ["Hello.", "What is the time?"]
    assert set(texts[2:]) == {"What is the time?"}
    lengths = [whole.usage.completion_tokens - short for short in (6, 4, 3)]
    due = [(limit, "length") for limit in lengths if limit > 0 for _ in ("whole", "streamed")]
    assert due
    assert [(answer.max_tokens, answer.due) for answer in answers] == due


def test_without_a_call_nothing_is_cut(chat: Chat) -> None:
    assert limits_in_a_call(chat, [BODY, BODY]) == []
    assert limits_in_a_call(chat, []) == []
