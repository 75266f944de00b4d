"""A server's prompts of marked requests, by each route that reports them, and broken routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from servers import running
from servers.scripted import ScriptedServer

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.conversation import Conversation
from pytest_vllm_gates.client import http
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.outcomes import Finding
from pytest_vllm_gates.prompts import marked, sent
from pytest_vllm_gates.prompts.marked import MarkedPrompt

if TYPE_CHECKING:
    from servers.scripted import ServerAnswer

GONE = (404, {"detail": "Not Found"})
TEXT = "the server's own text"


def prompt(outcome: Rendering | Refused, **more: Any) -> MarkedPrompt:
    messages = ({"role": "user", "content": "Hello."},)
    conversation = Conversation(name="plain", title="one question", messages=messages)
    body, pieces = sent.mark({"messages": list(messages), **more})
    return MarkedPrompt(conversation, body, pieces, outcome)


RENDERED = prompt(Rendering("Hello.", (1, 2), ("Hel", "lo.")))


def asked(
    answers: dict[str, ServerAnswer], of: MarkedPrompt = RENDERED, *, chats: bool = False
) -> list[marked.ServedPrompt]:
    served = {http.RENDER: GONE, "/detokenize": (200, {"prompt": TEXT}), **answers}
    with running(ScriptedServer(lambda path, _: served[path])) as server:
        return list(marked.ask([of], server.endpoint, chats=chats))


def test_same_ids_are_the_same_text() -> None:
    (served,) = asked({http.TOKENIZE: (200, {"tokens": [1, 2], "max_model_len": 9})})
    assert (served.route, served.text) == ("/tokenize", "Hello.")


def test_other_ids_are_detokenized_by_the_server() -> None:
    (served,) = asked({http.TOKENIZE: (200, {"tokens": [1, 3], "max_model_len": 9})})
    assert (served.text, served.refused) == (TEXT, "")


def test_refusal_is_reported() -> None:
    (served,) = asked({http.TOKENIZE: (400, {"error": "no names"})})
    assert "no names" in served.refused
    assert served.text == ""


@pytest.mark.parametrize("status", [500, 502])
def test_any_other_status_is_broken(status: int) -> None:
    (served,) = asked({http.TOKENIZE: (status, {"error": "TypeError"})})
    assert served.refused == f"answered {status}{marked.BROKEN}"
    assert served.route == "/tokenize"


def test_effort_is_sent_as_a_chat_if_the_server_answers() -> None:
    of = prompt(RENDERED.outcome, reasoning_effort="high")
    answers: dict[str, ServerAnswer] = {http.CHAT: (500, {"error": "TypeError"})}
    assert asked(answers, of) == []
    (served,) = asked(answers, of, chats=True)
    assert marked.BROKEN in served.refused


def test_long_conversations_are_left_out() -> None:
    class Reference:
        def outcome(self, _: Any) -> Refused:
            return Refused("never asked")

    qwen = families.load("qwen3.5", Path("/nonexistent"))
    messages = ({"role": "user", "content": "word " * 9_000},)
    long = Conversation(name="long", title="a long question", messages=messages)
    assert marked.render([long], qwen, Reference()) == ()  # type: ignore[arg-type]


DEEPSEEK = families.load("deepseek", Path("/nowhere"))
WITH_TOOLS = prompt(Refused("no"), tools=[{"type": "function", "function": {"name": "f"}}])


def then(of: MarkedPrompt, family: families.Family, **serve: Any) -> str:
    """Return the next step after something is wrong with a prompt."""
    finding = Finding(of.case, "wrong")
    return marked.next_step(marked.LOST, [finding], [of], family, serve)


def test_lost_tools_name_the_template_that_the_recipe_prescribes() -> None:
    said = then(WITH_TOOLS, DEEPSEEK)
    assert said.startswith(f"{marked.LOST}\nDeepSeek V3.1 is served with ")
    assert "tool_chat_template_deepseekv31.jinja: the checkpoint's own template" in said
    assert "get it from github.com/vllm-project/vllm, examples/ and set chat_template" in said


def test_the_template_is_not_named_where_it_would_not_help() -> None:
    assert then(RENDERED, DEEPSEEK) == marked.LOST, "no tools were declared"
    assert then(WITH_TOOLS, DEEPSEEK, chat_template="mine.jinja") == marked.LOST
    assert then(WITH_TOOLS, families.load("glm", Path("/nowhere"))) == marked.LOST
    assert marked.next_step(marked.LOST, [], [WITH_TOOLS], DEEPSEEK, {}) == marked.LOST
