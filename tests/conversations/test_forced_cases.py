# ruff: noqa: RUF001 - the bars in DeepSeek's tokens
"""Calls of all types are forced in the form that the served template renders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog import family as families, toml
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.conversations.forced_calls import LEAD_IN, ForcedReplies, TypedCalls
from pytest_vllm_gates.conversations.forced_cases import CALLS, typed_calls
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family

SHIPPED = toml.load(CALLS, TypedCalls).calls
TEMPLATES = {
    "qwen3.5": (
        "<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>",
        "<parameter={name}>\n{value}\n</parameter>\n",
    ),
    "glm": (
        "<tool_call>{name}{values}</tool_call>",
        "<arg_key>{name}</arg_key><arg_value>{value}</arg_value>",
    ),
    "deepseek/v4": (
        '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{name}">\n{values}'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        '<｜DSML｜parameter name="{name}" string="false">{value}</｜DSML｜parameter>\n',
    ),
}


def rendered(family: str, body: dict[str, Any]) -> str:
    """Render a conversation whose system prompt also shows an example of a call."""
    call, argument = TEMPLATES[family]
    assert body["add_generation_prompt"] is False
    function = body["messages"][-1]["tool_calls"][0]["function"]
    values = "".join(
        argument.format(name=name, value=value if isinstance(value, str) else json.dumps(value))
        for name, value in json.loads(function["arguments"]).items()
    )
    example = call.format(name="example", values="")
    return f"Call as {example}<turn>" + call.format(name=function["name"], values=values) + "<end>"


def obeys(body: dict[str, Any]) -> Generation:
    return Generation(body["structured_outputs"]["choice"][0])


def forced_replies(server: ScriptedModel, family: Family) -> ForcedReplies:
    chat = Chat(server.endpoint, family)
    try:
        return typed_calls(chat, server.endpoint, family)
    finally:
        chat.client.close()


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_call_is_forced_as_the_template_renders_it(name: str, tmp_path: Path) -> None:
    with running(ScriptedModel(obeys)) as server:
        server.render = lambda body: rendered(name, body)
        replies = forced_replies(server, families.load(name, tmp_path))
    assert replies.not_written == {}
    assert [forced_reply.name for forced_reply in replies.replies] == [
        typed_call.name for typed_call in SHIPPED
    ]
    for reply, shipped in zip(replies.replies, SHIPPED, strict=True):
        (written,) = reply.request["structured_outputs"]["choice"]
        (tool,) = reply.request["tools"]
        assert tool["function"]["parameters"] == json.loads(shipped.parameters)
        assert reply.arguments == json.loads(shipped.arguments)
        assert reply.exact
        call = rendered(name, {"add_generation_prompt": False, "messages": [
            {"tool_calls": [{"function": {"name": "save_note", "arguments": shipped.arguments}}]}
        ]})  # fmt: skip
        assert written == LEAD_IN + call.partition("<turn>")[2].removesuffix("<end>")


def test_a_format_of_json_needs_no_template(tmp_path: Path) -> None:
    with running(ScriptedModel(obeys)) as server:
        replies = forced_replies(server, families.load("deepseek", tmp_path))
    (written,) = replies.replies[0].request["structured_outputs"]["choice"]
    assert '"identifier": 9007199254740993' in written
    assert "save_note" in written


def test_a_template_without_calls_is_not_applicable(qwen: Family) -> None:
    why = "no call is rendered: ValueError: the chat template renders no call between '<tool_call>"
    with running(ScriptedModel(obeys)) as server, pytest.raises(NotApplicable, match=why):
        forced_replies(server, qwen)


def test_a_call_that_is_not_rendered_keeps_the_reason(qwen: Family) -> None:
    def renders(body: dict[str, Any]) -> str:
        return "" if "$defs" in json.dumps(body) else rendered("qwen3.5", body)

    with running(ScriptedModel(obeys)) as server:
        server.render = renders
        replies = forced_replies(server, qwen)
    assert [*replies.not_written] == ["referred"]
    assert len(replies.replies) == len(SHIPPED) - 1


def test_a_server_that_writes_no_call_is_inconclusive(qwen: Family) -> None:
    with running(ScriptedModel(lambda _: Generation("No."))) as server:
        server.render = lambda body: rendered("qwen3.5", body)
        with pytest.raises(Inconclusive, match="the answer's tokens differ"):
            forced_replies(server, qwen)


def test_a_family_without_tools_is_not_applicable(tmp_path: Path) -> None:
    with (
        running(ScriptedModel(obeys)) as server,
        pytest.raises(NotApplicable, match="calls no tools"),
    ):
        forced_replies(server, families.load("gemma/3", tmp_path))


@pytest.mark.parametrize("shipped", SHIPPED, ids=[call.name for call in SHIPPED])
def test_the_shipped_arguments_are_of_the_declared_types(shipped: Any) -> None:
    parameters, arguments = json.loads(shipped.parameters), json.loads(shipped.arguments)
    assert parameters["properties"].keys() == arguments.keys()
    jsonschema.Draft202012Validator(parameters).validate(arguments)
