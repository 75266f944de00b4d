"""A message in the form that vLLM passes to a template."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.prompts.types import (
    as_served,
    options_as_served,
    tools_as_served,
    without_developers,
)

PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def called(arguments: Any) -> Any:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    served = as_served({"role": "assistant", "tool_calls": [call]})
    return served["tool_calls"][0]["function"]["arguments"]


def test_absent_content_becomes_empty() -> None:
    assert as_served({"role": "assistant", "content": None})["content"] == ""
    assert as_served({"role": "assistant"})["content"] == ""


def test_parts_are_joined_where_the_template_takes_texts() -> None:
    message = {"role": "user", "content": PARTS}
    assert as_served(message)["content"] == "one\ntwo"
    assert as_served(message, in_parts=True)["content"] == PARTS


def test_a_text_is_one_part_where_the_template_takes_parts() -> None:
    message = {"role": "user", "content": "one"}
    assert as_served(message, in_parts=True)["content"] == PARTS[:1]
    assert as_served({"role": "assistant"}, in_parts=True)["content"] == []


def test_a_tools_result_is_always_a_text() -> None:
    message = {"role": "tool", "tool_call_id": "1", "content": PARTS}
    served = as_served(message, in_parts=True)
    assert served == {"role": "tool", "tool_call_id": "1", "content": "one\ntwo"}


def test_a_part_that_is_not_text_is_named() -> None:
    with pytest.raises(ValueError, match=r"^content parts of type image_url: the template"):
        as_served({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]})


def test_keys_that_vllm_leaves_out_are_left_out() -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "tool_calls": [],
        "name": "Bo",
    }
    assert as_served(message) == {"role": "assistant", "content": "x", "name": "Bo"}


def test_empty_reasoning_is_kept() -> None:
    assert as_served({"role": "assistant", "content": "x", "reasoning": ""})["reasoning"] == ""
    assert "reasoning" not in as_served({"role": "assistant", "content": "x"})


def test_tools_have_vllms_keys_in_its_order() -> None:
    tool: dict[str, Any] = {
        "function": {"parameters": {}, "name": "f", "strict": True, "more": 1},
        "more": 2,
    }
    (served,) = tools_as_served([tool]) or [{}]
    function: dict[str, Any] = {"name": "f", "description": None, "parameters": {}, "strict": True}
    assert served == {"type": "function", "function": function}
    assert list(served) == ["type", "function"]
    assert list(served["function"]) == ["name", "description", "parameters", "strict"]


def test_no_tools_are_none() -> None:
    assert tools_as_served(None) is None
    assert tools_as_served([]) is None


def test_a_continued_message_opens_no_answer() -> None:
    assert options_as_served({}, {}) == {
        "add_generation_prompt": True,
        "continue_final_message": False,
    }
    assert options_as_served({"continue_final_message": True}, {}) == {
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


@pytest.mark.parametrize(
    ("effort", "kwargs", "thinks"),
    [("high", {}, True), ("none", {}, False), ("high", {"enable_thinking": False}, False)],
)
def test_an_effort_switches_thinking_unless_set(
    effort: str, kwargs: dict[str, Any], thinks: bool
) -> None:
    body = {"reasoning_effort": effort, "chat_template_kwargs": kwargs}
    options = options_as_served(body, {"enable_thinking": not thinks})
    assert (options["reasoning_effort"], options["enable_thinking"]) == (effort, thinks)


def test_null_and_auto_keep_the_servers_default() -> None:
    body = {"chat_template_kwargs": {"a": None, "b": "auto", "c": False}}
    options = options_as_served(body, {"a": 1, "b": 2, "c": 3})
    assert (options["a"], options["b"], options["c"]) == (1, 2, False)


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": "because"},
        {"reasoning_content": "because"},
        {"reasoning": None, "reasoning_content": "because"},
        {"reasoning": "because", "reasoning_content": "or so"},
    ],
)
def test_reasoning_has_both_its_names(message: dict[str, Any]) -> None:
    served = as_served({"role": "assistant", "content": "x", **message})
    assert (served["reasoning"], served["reasoning_content"]) == ("because", "because")


@pytest.mark.parametrize(
    ("message", "served"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{not json", {}),
        ("[1]", {}),
    ],
)
def test_arguments_become_an_object(message: Any, served: dict[str, Any]) -> None:
    assert called(message) == served


def test_the_clients_request_is_not_changed() -> None:
    message = {"role": "user", "content": None}
    as_served(message)
    assert message == {"role": "user", "content": None}


def test_first_developer_becomes_the_system() -> None:
    messages = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]
    assert without_developers(messages) == [{"role": "system", "content": "a"}, messages[1]]


def test_later_developers_and_systems_become_one_at_the_start() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": PARTS},
        {"role": "user", "content": "b"},
        {"role": "developer", "content": "c"},
        {"role": "developer", "content": ""},
    ]
    assert without_developers(messages) == [
        {"role": "system", "content": "one\ntwo\n\nc"},
        {"role": "user", "content": "b"},
    ]
