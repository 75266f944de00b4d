"""A stream's pieces are timed, and so are the server's other answers meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.conversations.pace import TIMES, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.conversations.pace import TimedStream

BODY = {"messages": [{"role": "user", "content": "Write."}]}


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    calls = [("get_weather", '{"city": "Oslo"}')]
    with running(ScriptedModel(lambda _: Generation("It is cold.", "Hm.", calls))) as server:
        yield server


@pytest.fixture
def chat(server: ScriptedModel, qwen: Family) -> Iterator[Chat]:
    chat = Chat(server.endpoint, qwen)
    yield chat
    chat.client.close()


def test_every_piece_with_text_is_timed(chat: Chat, server: ScriptedModel) -> None:
    (stream,) = measure(chat, server.endpoint, BODY, "an answer", lambda _: False).streams
    assert stream.what == "an answer"
    assert list(stream.times) == sorted(stream.times)
    assert len(stream.times) == len(stream.sizes)
    texts = ("Hm.", "It is cold.", "get_weather", '{"city": "Oslo"}')
    assert sum(stream.sizes) == sum(len(text) for text in texts)
    assert min(stream.sizes) > 0
    assert stream.tokens == len(server.ids("".join(("Hm.", "It is cold.", *texts[2:]))))


def test_a_stream_that_is_not_late_is_not_repeated(chat: Chat, server: ScriptedModel) -> None:
    assert len(measure(chat, server.endpoint, BODY, "an answer", lambda _: False).streams) == 1


def test_a_late_stream_is_repeated_until_one_is_not(chat: Chat, server: ScriptedModel) -> None:
    faults = iter([True, True, False])
    streams = measure(chat, server.endpoint, BODY, "an answer", lambda _: next(faults))
    assert len(streams.streams) == 3
    assert streams.request == BODY


def test_a_stream_is_measured_eight_times_at_most(chat: Chat, server: ScriptedModel) -> None:
    judged: list[TimedStream] = []

    def never(stream: TimedStream) -> bool:
        judged.append(stream)
        return True

    streams = measure(chat, server.endpoint, BODY, "an answer", never)
    assert [*streams.streams] == judged
    assert len(judged) == TIMES == len(server.chats_seen)


def test_silence_is_the_longest_time_between_beats(chat: Chat, server: ScriptedModel) -> None:
    (stream,) = measure(chat, server.endpoint, BODY, "an answer", lambda _: False).streams
    assert stream.silence_between(1e9, 3e9) == 2e9
