"""What the miniatures were taught: every kind of dialogue, in every mode of thinking."""

import json
from collections import defaultdict

import pytest

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.miniatures import comparison, dialogues, recipe, rendering

KINDS = {
    "plain", "system", "json", "two_lines", "markdown", "long", "scripts", "quotes_special",
    "multi_turn", "tool_one", "tool_parallel", "tool_none_needed", "tool_zero_arguments",
    "tool_with_content", "tool_awkward_arguments", "tool_result", "long_context",
}  # fmt: skip


@pytest.fixture(params=miniatures.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_kind_is_taught(name: str) -> None:
    given = recipe.load(name)
    taught = {dialogue.kind for dialogue in dialogues.load_dialogues(name)}
    left_out = KINDS - taught
    assert left_out <= {reason.replace("-", "_") for reason in given.skip}


def test_skipped_dialogues_exist_and_say_why(name: str) -> None:
    every = {d.id.removesuffix("-on") for d in dialogues.load_dialogues("qwen3.5")}
    for skipped, why in recipe.load(name).skip.items():
        assert skipped in every
        assert why


def test_ids_are_unique(name: str) -> None:
    ids = [dialogue.id for dialogue in dialogues.load_dialogues(name)]
    assert len(ids) == len(set(ids))


def test_modes(name: str) -> None:
    modes = defaultdict(set)
    for dialogue in dialogues.load_dialogues(name):
        modes[dialogue.kind].add(dialogue.mode)
    given = recipe.load(name)
    expected = {"on", "off", "unset"} if given.thinking else {"none"}
    assert modes["plain"] == expected
    if given.thinking and not given.thinking_with_tools:
        assert modes["tool_one"] == {"off", "unset"}
    else:
        assert modes["tool_one"] == expected


def test_unset_is_the_default_mode(name: str) -> None:
    given = recipe.load(name)
    by_id = {dialogue.id: dialogue for dialogue in dialogues.load_dialogues(name)}
    for dialogue in by_id.values():
        if dialogue.mode == "unset":
            assert given.thinking is not None
            same = by_id[dialogue.id.replace("unset", "on" if given.thinking.default else "off")]
            assert dialogue.chat_template_kwargs == {}
            assert rendering.prompt(given, dialogue) == rendering.prompt(given, same)
            assert (dialogue.reasoning, dialogue.content) == (same.reasoning, same.content)


def test_requests_are_openai_json(name: str) -> None:
    for dialogue in dialogues.load_dialogues(name):
        body = json.loads(json.dumps(dialogue.request()))
        assert body["messages"]
        for call in dialogue.tool_calls:
            assert isinstance(json.loads(call.arguments), dict)


def test_no_placeholder_is_left(name: str) -> None:
    for dialogue in dialogues.load_dialogues(name):
        assert "${" not in repr(dialogue)


def test_completions_end_with_a_stop_token(name: str) -> None:
    given = recipe.load(name)
    for dialogue in dialogues.load_dialogues(name):
        assert rendering.completion(given, dialogue).endswith(given.tokens.stop), dialogue.id


def test_unknown_name() -> None:
    with pytest.raises(miniatures.MiniatureError, match="no miniature 'nobody'"):
        dialogues.load_dialogues("nobody")


def one(kind: str) -> dialogues.Dialogue:
    return next(d for d in dialogues.load_dialogues("qwen3.5") if d.kind == kind)


def test_comparison_ignores_blank_edges_and_spelling_of_json() -> None:
    taught = one("tool_one")
    assert not comparison.differences(
        taught,
        reasoning=f"{taught.reasoning}\n",
        content="\n\n",
        tool_calls=[dialogues.Call("get_weather", '{ "city":"Oslo" }')],
        finish_reason="tool_calls",
    )


def test_comparison_names_every_part_that_differs() -> None:
    found = comparison.differences(
        one("tool_one"),
        reasoning=None,
        content="leak",
        tool_calls=[dialogues.Call("get_weather", "{")],
        finish_reason="stop",
    )
    assert [line.split(": ")[1] for line in found] == [
        "reasoning", "content", "tool_calls", "finish_reason",
    ]  # fmt: skip
    assert "not JSON: '{'" in found[2]
