"""A stream is assembled by OpenAI's rules: text is appended, calls are merged by index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from servers import running
from servers.scripted import Generation, ScriptedModel, ScriptedServer

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.client.answer import ToolCall, Usage
from pytest_vllm_gates.client.chat import Chat, assemble
from pytest_vllm_gates.client.endpoint import Endpoint
from pytest_vllm_gates.client.form import Malformed


def chunk(
    delta: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    usage: tuple[int, int] | None = None,
) -> ChatCompletionChunk:
    """Return an event; without a delta it has no choice, like the last event with the usage."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return ChatCompletionChunk.model_validate(
        {
            "id": "x",
            "created": 0,
            "model": "m",
            "object": "chat.completion.chunk",
            "choices": [] if delta is None else [choice],
            "usage": usage
            and {
                "prompt_tokens": usage[0],
                "completion_tokens": usage[1],
                "total_tokens": sum(usage),
            },
        }
    )


def part(index: int, arguments: str = "", name: str | None = None, call: str | None = None) -> Any:
    function = {"arguments": arguments, "name": name}
    return {"tool_calls": [{"index": index, "id": call, "type": "function", "function": function}]}


def test_text_appends_and_the_last_event_counts_the_tokens() -> None:
    answer = assemble(
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "It is "}),
            chunk({"content": "cold."}),
            chunk({}, finish_reason="stop"),
            chunk(usage=(10, 3)),
        ]
    )
    assert (answer.content, answer.reasoning, answer.tool_calls) == ("It is cold.", "", ())
    assert (answer.finish_reason, answer.usage) == ("stop", Usage(10, 3))
    assert answer.chunks == 2


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_names(name: str) -> None:
    answer = assemble([chunk({name: "Let me "}), chunk({name: "think."}), chunk({"content": "4"})])
    assert (answer.reasoning, answer.content) == ("Let me think.", "4")


def test_reasoning_sent_under_both_names_is_taken_once() -> None:
    both = {"reasoning": "Hm.", "reasoning_content": "Hm."}
    assert assemble([chunk(both)]).reasoning == "Hm."


def test_a_call_is_merged_by_its_index_and_named_once() -> None:
    answer = assemble(
        [
            chunk(part(0, name="get_weather", call="call-1")),
            chunk(part(0, '{"city": ')),
            chunk(part(0, '"Oslo"}')),
            chunk({}, finish_reason="tool_calls"),
        ]
    )
    assert answer.tool_calls == (ToolCall("get_weather", '{"city": "Oslo"}', "call-1"),)
    assert answer.finish_reason == "tool_calls"


def test_interleaved_calls_are_kept_apart_and_in_order() -> None:
    answer = assemble(
        [
            chunk(part(1, name="second", call="b")),
            chunk(part(0, name="first", call="a")),
            chunk(part(1, '{"b"')),
            chunk(part(0, '{"a"')),
            chunk(part(0, ": 1}")),
            chunk(part(1, ": 2}")),
        ]
    )
    assert answer.tool_calls == (
        ToolCall("first", '{"a": 1}', "a"),
        ToolCall("second", '{"b": 2}', "b"),
    )


def test_several_calls_in_one_event_are_all_taken() -> None:
    first_call = {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}
    second_call = {"index": 1, "id": "b", "function": {"name": "y", "arguments": "{}"}}
    calls = assemble([chunk({"tool_calls": [first_call, second_call]})]).tool_calls
    assert [call.name for call in calls] == ["x", "y"]


def test_a_repeated_name_stays_repeated() -> None:
    """As in OpenAI's client, so that a server that sends it twice is found."""
    calls = assemble([chunk(part(0, name="x")), chunk(part(0, name="x"))]).tool_calls
    assert calls == (ToolCall("xx", "", None),)


def test_a_stream_of_nothing_is_an_empty_answer() -> None:
    answer = assemble([])
    assert (answer.content, answer.finish_reason, answer.chunks) == ("", None, 0)
    assert answer.usage is None


def asked(
    thinking: str = "unset", more: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    family = families.load("qwen3.5", Path("/nowhere"))
    chat = Chat(Endpoint("http://127.0.0.1:9/v1", "alias"), family)
    conversation = Conversation(
        name="x", title="x", messages=({"role": "user", "content": "Hi"},),
        thinking=thinking, **changes,  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        return chat._arguments({**conversation.body(family), "max_tokens": 64, **(more or {})})
    finally:
        chat.client.close()


def test_a_request_is_greedy_and_names_the_alias() -> None:
    request = asked()
    assert (request["model"], request["temperature"], request["seed"]) == ("alias", 0, 0)
    assert request["max_tokens"] == 64
    assert not {"tools", "extra_body"} & set(request)


def test_a_request_carries_tools_and_the_thinking_switch() -> None:
    request = asked("off", tools=({"type": "function"},))
    assert request["tools"] == [{"type": "function"}]
    assert request["extra_body"] == {"chat_template_kwargs": {"enable_thinking": False}}


def test_a_body_overrides_defaults_and_none_removes_them() -> None:
    request = asked(more={"temperature": 1.0, "seed": None, "stop": ["."], "stop_token_ids": [7]})
    assert (request["temperature"], request["stop"]) == (1.0, ["."])
    assert "seed" not in request
    assert request["extra_body"] == {"stop_token_ids": [7]}


@pytest.mark.parametrize(
    ("generation", "excerpt"),
    [
        (Generation(instead="<html>busy</html>"), "'<html>busy</html>'"),
        (Generation(instead={"choices": []}), "choices=[]"),
    ],
)
def test_a_reply_that_is_not_a_completion_raises(generation: Generation, excerpt: str) -> None:
    family = families.load("qwen3.5", Path("/nowhere"))
    with running(ScriptedModel(lambda _: generation)) as server:
        chat = Chat(server.endpoint, family)
        with chat.client, pytest.raises(ValueError, match="is not a chat completion: ") as caught:
            chat.ask({"messages": [{"role": "user", "content": "Hi"}]})
    assert excerpt in str(caught.value)


def test_arguments_that_are_not_text_become_text() -> None:
    family = families.load("qwen3.5", Path("/nowhere"))
    with running(
        ScriptedModel(lambda _: Generation("", calls=[("get_time", {"zone": 1})]))
    ) as server:
        chat = Chat(server.endpoint, family)
        with chat.client:
            answer = chat.ask({"messages": [{"role": "user", "content": "Hi"}]})
    assert answer.tool_calls == (ToolCall("get_time", "{'zone': 1}", "call-0"),)


WRONG = {
    "content": {"content": 5},
    "reasoning": {"reasoning": ["a"]},
    "id": {"tool_calls": [{"index": 0, "id": 7, "function": {"name": "f", "arguments": "{}"}}]},
    "name": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": 7, "arguments": "{}"}}]},
    "index": {"tool_calls": [{"index": [], "id": "a", "function": {"name": "f"}}]},
    "calls": {"tool_calls": 7},
}


@pytest.mark.parametrize("delta", WRONG.values(), ids=WRONG)
def test_field_of_a_wrong_type_is_malformed(delta: dict[str, Any]) -> None:
    """A client that does not check would join text and a number, or crash."""
    chunk = {"id": "x", "created": 0, "model": "m", "object": "chat.completion.chunk"}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    whole = {"index": 0, "message": {"role": "assistant", **delta}, "finish_reason": "stop"}

    def answer(_: str, body: Any) -> Any:
        if body.get("stream"):
            return 200, [{**chunk, "choices": [choice]}]
        return 200, {**chunk, "choices": [whole], "object": "chat.completion"}

    with running(ScriptedServer(answer)) as server:
        chat = Chat(server.endpoint, families.load("qwen3.5", Path("/nowhere")))
        with chat.client:
            for ask in (chat.stream, chat.ask):
                if ask == chat.ask and "index" in str(delta) and "[]" in str(delta):
                    continue  # a whole answer's calls have no index
                with pytest.raises(Malformed):
                    ask({"messages": [{"role": "user", "content": "Hi"}]})
