"""Long prompts have the requested length, and a hidden needle is found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from servers import running
from servers.scripted import Generation, ScriptedModel

from pytest_vllm_gates.long_context import prompts
from pytest_vllm_gates.long_context.types import load
from pytest_vllm_gates.numerics.types import ReferenceScores, Scores

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

NUMBER = re.compile(r"key is (\d{6})\.")


def finds(body: dict[str, Any]) -> Generation:
    """Answer with the number that stands in the text."""
    match = NUMBER.search(body["messages"][-1]["content"])
    return Generation(f"It is {match[1]}." if match else "There is none.")


def test_a_prompt_has_the_requested_tokens() -> None:
    with running(ScriptedModel(lambda _: Generation())) as server:
        ids = prompts.token_ids(server.endpoint, load(), 5000)
        again = prompts.token_ids(server.endpoint, load(), 700)
        assert server.text(list(ids)).startswith("1. The tide comes in")
    assert len(ids) == 5000
    assert again == ids[:700]


def test_paragraphs_are_numbered() -> None:
    lines = list(load().text_of(30))
    assert len(set(lines)) == 30
    assert all(line.endswith("\n") for line in lines)


def test_ends_keep_a_token_more_than_their_scores() -> None:
    scores = Scores(tuple(range(10)), tuple(-float(i) for i in range(9)), (1,), (-0.1,), (5.0,))
    ends = prompts.last_reference_scores(ReferenceScores("w", "s", {"10 tokens": scores}), 3).cases[
        "10 tokens"
    ]
    assert ends.prompt == (6, 7, 8, 9)
    assert ends.prompt_logprobs == (-6.0, -7.0, -8.0)
    assert ends.output == (1,)


def test_a_needle_is_hidden_at_its_depth(qwen: Family) -> None:
    with running(ScriptedModel(finds)) as server:
        haystack = prompts.Haystack(server.endpoint, qwen, load())
        places = []
        for depth in (0.0, 0.5, 1.0):
            assert haystack.ask(2000, depth).found
            text = server.chats_seen[-1]["messages"][-1]["content"]
            hidden = NUMBER.search(text)
            assert hidden is not None
            places.append(hidden.start() / len(text))
            assert 1000 < len(server.ids(text)) < 2000
    assert places[0] < 0.05
    assert 0.4 < places[1] < 0.6
    assert places[2] > 0.9


def test_a_needle_may_not_be_found(qwen: Family) -> None:
    with running(ScriptedModel(lambda _: Generation("I only know what I was taught."))) as server:
        hay = prompts.Haystack(server.endpoint, qwen, load()).ask(160, 0.5)
    assert not hay.found
    assert "taught" in hay.shown
