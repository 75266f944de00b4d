"""A server is forced to write awkward calls; unwritten ones are reported and not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.client.chat import Chat
from pytest_vllm_gates.conversations.checks.tool_calls import altered_arguments
from pytest_vllm_gates.conversations.forced_calls import LEAD_IN, ForcedReplies
from pytest_vllm_gates.conversations.forced_cases import hostile_calls, long_call
from pytest_vllm_gates.outcomes import Inconclusive, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family


def obeys(body: dict[str, Any]) -> Generation:
    """Write the text that the grammar allows, as a call that no parser recognises."""
    return Generation(body["structured_outputs"]["choice"][0])


def forced(
    family: Family, generate: Callable[[dict[str, Any]], Generation]
) -> tuple[ForcedReplies, ScriptedModel]:
    with running(ScriptedModel(generate)) as server:
        chat = Chat(server.endpoint, family)
        try:
            return hostile_calls(chat, server.endpoint, family), server
        finally:
            chat.client.close()


FAMILIES = ("qwen3.5", "deepseek", "glm", "gemma")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_text_is_forced_in_the_familys_format(name: str, tmp_path: Path) -> None:
    family = families.load(name, tmp_path)
    assert family.tools is not None
    replies, server = forced(family, obeys)
    assert replies.not_written == {}
    assert len(replies.replies) >= 15
    for reply in replies.replies:
        (written,) = reply.request["structured_outputs"]["choice"]
        assert written.startswith(LEAD_IN)
        assert family.tools.markers[0] in written
        assert "save_note" in written
        assert "${" not in written
        assert reply.request["max_tokens"] > len(server.ids(written))
    assert max(len(reply.arguments["text"]) for reply in replies.replies) >= 10_000


def test_a_call_that_stays_text_is_a_fault(qwen: Family) -> None:
    replies, _ = forced(qwen, obeys)
    faults = [fault for reply in replies.replies for fault in altered_arguments(reply)]
    assert faults[0] == "whole: one call was written and 0 came"


def test_a_text_with_the_familys_tags_is_not_exact(qwen: Family) -> None:
    replies, _ = forced(qwen, obeys)
    inexact = {reply.name for reply in replies.replies if not reply.exact}
    assert inexact == {"own-close", "own-open"}


def test_json_arguments_are_always_exact(tmp_path: Path) -> None:
    replies, _ = forced(families.load("deepseek", tmp_path), obeys)
    assert all(reply.exact for reply in replies.replies)


def test_a_call_that_was_not_written_is_not_judged(qwen: Family) -> None:
    def sometimes(body: dict[str, Any]) -> Generation:
        if "☔" in body["structured_outputs"]["choice"][0]:
            return Generation("No.")
        return obeys(body)

    replies, _ = forced(qwen, sometimes)
    assert replies.not_written == {
        "scripts": "the answer's tokens differ from those that the grammar allows"
    }
    assert "scripts" not in {reply.name for reply in replies.replies}


@pytest.mark.parametrize(
    ("generate", "why"),
    [
        (lambda _: Generation("No."), "the answer's tokens differ"),
        (lambda _: Generation(status=400), "BadRequestError: "),
    ],
    ids=["disobeys", "refuses"],
)
def test_a_server_that_writes_no_call_is_inconclusive(
    qwen: Family, generate: Callable[[dict[str, Any]], Generation], why: str
) -> None:
    with pytest.raises(Inconclusive) as caught:
        forced(qwen, generate)
    assert "the server did not write the text that structured_outputs.choice allows" in str(
        caught.value
    )
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gemma/3", "gemma/3 calls no tools"),
        ("deepseek/r1", "deepseek/r1 always thinks first"),
    ],
)
def test_a_family_without_forced_calls_is_not_applicable(
    name: str, why: str, tmp_path: Path
) -> None:
    family = families.load(name, tmp_path)
    with pytest.raises(NotApplicable, match=why):
        forced(family, obeys)
    with running(ScriptedModel(obeys)) as server, pytest.raises(NotApplicable, match=why):
        long_call(server.endpoint, family)


def test_a_long_call_has_enough_tokens_to_time(qwen: Family) -> None:
    with running(ScriptedModel(obeys)) as server:
        body = long_call(server.endpoint, qwen)
        (written,) = body["structured_outputs"]["choice"]
        assert len(server.ids(written)) > 200
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_server_error_on_a_forced_call_is_kept(qwen: Family) -> None:
    replies, _ = forced(qwen, lambda _: Generation(status=500))
    assert replies.replies == []
    assert set(replies.failed) == set(replies.not_written)
    assert all("no chat today" in error for error in replies.failed.values())
