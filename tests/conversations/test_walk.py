"""The matrix is walked: every cell whole, streamed and wide; stops come from plain answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog import conversation as conversations, family as families
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.catalog.matrix import ConversationRule, Matrix
from pytest_vllm_gates.client.recorder import HEADER
from pytest_vllm_gates.conversations.checks import events
from pytest_vllm_gates.conversations.walk import MODES, WIDE_TOKENS, Walk

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange

HELLO = Conversation(name="hello", title="hello", messages=({"role": "user", "content": "Hello"},))
WEATHER = HELLO.model_copy(
    update={
        "name": "weather",
        "tools": ({"type": "function", "function": {"name": "get_weather"}},),
    }
)
WAIT_S = 5.0
STOPS = ("unset", "occurs", "in_reasoning", "straddles", "never", "token_ids")


def small(stops: tuple[str, ...] = STOPS, thinking: tuple[str, ...] = ("unset",)) -> Matrix:
    """Return a matrix with one question and these stops."""
    plain = {"tools": ("undeclared",), "format": ("text",), "turns": ("single",)}
    return Matrix(
        dimensions={"thinking": thinking, **plain, "stop": stops},
        asked=(
            ConversationRule(
                turns="single", tools=("undeclared",), format="text", conversation="hello"
            ),
        ),
    )


def generation(_: dict[str, Any]) -> Generation:
    return Generation("The sea is wide and never sleeps.", "Two lines will do.")


def walked(
    server: ScriptedModel, family: Family, cells: Matrix, *more: Conversation
) -> tuple[Walk, dict[str, Exchange]]:
    walk = Walk(server.endpoint, family, cells, (HELLO, *more), 300)
    exchanges = walk.run()
    return walk, {
        exchange.cell.stop if exchange.cell.turns == "single" else exchange.cell.turns: exchange
        for exchange in exchanges
    }


def test_every_cell_is_sent_in_three_modes(qwen: Family) -> None:
    with running(ScriptedModel(generation)) as server:
        walk, exchanges = walked(server, qwen, small())
    assert set(exchanges) == set(STOPS)
    assert walk.requests == len(server.chats_seen) == 3 * len(STOPS)
    for exchange in exchanges.values():
        assert exchange.error == ""
        assert exchange.whole and exchange.streamed and exchange.widened
        assert exchange.request["max_tokens"] == 300
        assert list(events.faults(exchange.stream)) == []
        assert exchange.body.body.startswith(b"{")
        assert exchange.stream.pieces != ()
    kinds = [(body.get("stream", False), body.get("stream_interval")) for body in server.chats_seen]
    for kind in ((False, None), (True, None), (True, WIDE_TOKENS)):
        assert kinds.count(kind) == len(STOPS)


def test_the_modes_of_a_cell_are_sent_at_once(qwen: Family) -> None:
    together = threading.Barrier(MODES, timeout=WAIT_S)

    def waiting(body: dict[str, Any]) -> Generation:
        together.wait()
        return generation(body)

    with running(ScriptedModel(waiting)) as server:
        _, exchanges = walked(server, qwen, small(("unset",)))
    assert exchanges["unset"].error == ""
    assert not together.broken


def test_the_raw_text_is_the_tokens_text(qwen: Family) -> None:
    with running(ScriptedModel(generation)) as server:
        _, exchanges = walked(server, qwen, small(("unset",)))
    assert exchanges["unset"].raw == "Two lines will do.The sea is wide and never sleeps."


def test_stops_are_taken_from_the_answer_without_one(qwen: Family) -> None:
    with running(ScriptedModel(generation)) as server:
        _, exchanges = walked(server, qwen, small())
    plain = exchanges["unset"].whole
    assert plain is not None
    for kind in ("occurs", "straddles", "in_reasoning"):
        exchange = exchanges[kind]
        assert exchange.unstopped == plain
        assert isinstance(exchange.stop, str)
        assert exchange.stop in (plain.reasoning if kind == "in_reasoning" else plain.content)
        assert exchange.request["stop"] == [exchange.stop]
        assert exchange.stopped
    assert exchanges["token_ids"].request["stop_token_ids"] == [exchanges["token_ids"].stop]
    assert exchanges["token_ids"].stop in plain.token_ids
    assert not exchanges["never"].stopped
    assert exchanges["never"].whole == plain


def test_a_stop_waits_only_for_its_own_plain_answer(qwen: Family) -> None:
    stopped, in_time = threading.Event(), []

    def slow(body: dict[str, Any]) -> Generation:
        if body.get("stop"):
            stopped.set()
        elif body["messages"][0]["content"] == "Tell me a story.":
            in_time.append(stopped.wait(WAIT_S))
        return generation(body)

    story = HELLO.model_copy(
        update={
            "name": "story", "ask": True,
            "messages": ({"role": "user", "content": "Tell me a story."},),
        }
    )  # fmt: skip
    with running(ScriptedModel(slow)) as server:
        walked(server, qwen, small(("unset", "occurs")), story)
    assert in_time == [True] * 3


def test_an_answer_that_offers_no_stop_is_not_applicable(qwen: Family) -> None:
    with running(ScriptedModel(lambda _: Generation("Yes"))) as server:
        walk, exchanges = walked(server, qwen, small())
    assert set(exchanges) == {"unset", "never"}
    assert len(walk.not_applicable) == 4
    assert set(walk.not_applicable.values()) == {"the answer without a stop has no text to stop at"}


def test_cells_a_family_cannot_have_are_not_sent(tmp_path: Path) -> None:
    deepseek = families.load("deepseek", tmp_path)
    cells = small(("unset", "in_reasoning"), ("unset", "on"))
    with running(ScriptedModel(generation)) as server:
        walk, _ = walked(server, deepseek, cells)
        assert list(walk.not_applicable.values()) == [
            "deepseek does not think unless the request turns thinking on"
        ]
    gemma = families.load("gemma/3", tmp_path)
    with running(ScriptedModel(generation)) as server:
        walk, _ = walked(server, gemma, small(("unset",), ("unset", "on")))
    assert [*walk.not_applicable.values()] == ["gemma/3 has no thinking switch"]


def test_a_failed_request_keeps_its_error_and_no_other(qwen: Family) -> None:
    def refuses(body: dict[str, Any]) -> Generation:
        return Generation(status=400) if "stop" in body else generation(body)

    with running(ScriptedModel(refuses)) as server:
        _, exchanges = walked(server, qwen, small(("unset", "never", "token_ids")))
    assert exchanges["never"].error.startswith("answered 400: ")
    assert "no chat today" in exchanges["never"].error
    assert exchanges["never"].whole is None
    assert exchanges["unset"].error == exchanges["token_ids"].error == ""


def test_without_a_plain_answer_no_stop_is_sent(qwen: Family) -> None:
    with running(ScriptedModel(lambda _: Generation(status=500))) as server:
        _, exchanges = walked(server, qwen, small())
    assert set(exchanges) == {"unset"}
    assert exchanges["unset"].error.startswith("answered 500")


def test_conversations_to_send_are_cells_too(qwen: Family) -> None:
    more = HELLO.model_copy(update={"name": "mine", "ask": True})
    silent = HELLO.model_copy(update={"name": "silent"})
    with running(ScriptedModel(generation)) as server:
        _, exchanges = walked(server, qwen, small(("unset",)), more, silent)
    assert set(exchanges) == {"unset", "mine"}


def test_tools_go_with_the_choice(qwen: Family) -> None:
    cells = Matrix(
        dimensions={
            "thinking": ("unset",), "tools": ("auto", "required", "named", "none"),
            "format": ("text",), "stop": ("unset",), "turns": ("single",),
        },
        asked=(
            ConversationRule(
                turns="single",
                tools=("auto", "required", "named", "none"),
                format="text",
                conversation="weather",
            ),
        ),
    )  # fmt: skip
    with running(ScriptedModel(lambda _: Generation("", calls=[("get_weather", "{}")]))) as server:
        walk = Walk(server.endpoint, qwen, cells, (WEATHER,), 300)
        exchanges = {exchange.cell.tools: exchange for exchange in walk.run()}
    named = {"type": "function", "function": {"name": "get_weather"}}
    choices = {tools: exchange.request["tool_choice"] for tools, exchange in exchanges.items()}
    assert choices == {"auto": "auto", "required": "required", "named": named, "none": "none"}
    for exchange in exchanges.values():
        assert exchange.whole and [call.name for call in exchange.whole.tool_calls] == [
            "get_weather"
        ]


@pytest.mark.parametrize(
    ("thinking", "default", "thinks"),
    [
        ("on", "qwen3.5", True),
        ("off", "qwen3.5", False),
        ("unset", "qwen3.5", True),
        ("unset", "deepseek", False),
        ("unset", "gemma", False),
    ],
)
def test_a_cell_knows_whether_the_model_thinks(
    thinking: str, default: str, thinks: bool, tmp_path: Path
) -> None:
    family = families.load(default, tmp_path)
    with running(ScriptedModel(generation)) as server:
        _, exchanges = walked(server, family, small(("unset",), (thinking,)))
    assert exchanges["unset"].thinks == thinks


def test_the_shipped_conversations_can_be_walked(qwen: Family, tmp_path: Path) -> None:
    every = conversations.load_all(tmp_path)
    with running(ScriptedModel(generation)) as server:
        walk = Walk(server.endpoint, qwen, small(("unset",)), (HELLO, *every), 300)
        exchanges = walk.run()
    assert len(exchanges) == 1 + len([conversation for conversation in every if conversation.ask])
    assert HEADER == "x-request-id"
