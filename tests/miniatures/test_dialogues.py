"""The dialogues of the miniatures: every kind, in every mode of thinking."""

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


@pytest.fixture(params=recipe.answering())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_kind_has_a_dialogue(name: str) -> None:
    model_recipe = recipe.load(name)
    kinds = {dialogue.kind for dialogue in dialogues.load_dialogues(name)}
    left_out = KINDS - kinds
    assert left_out <= {reason.replace("-", "_") for reason in model_recipe.skip}


def test_skipped_dialogues_exist_and_have_reasons(name: str) -> None:
    ids = {d.id.removesuffix("-on") for d in dialogues.load_dialogues("qwen3.5")}
    for skipped, reason in recipe.load(name).skip.items():
        assert skipped in ids
        assert reason


def test_ids_are_unique(name: str) -> None:
    ids = [dialogue.id for dialogue in dialogues.load_dialogues(name)]
    assert len(ids) == len(set(ids))


def test_modes(name: str) -> None:
    modes = defaultdict(set)
    for dialogue in dialogues.load_dialogues(name):
        modes[dialogue.kind].add(dialogue.mode)
    model_recipe = recipe.load(name)
    expected = {"on", "off", "unset"} if model_recipe.thinking else {"none"}
    if model_recipe.thinking and model_recipe.thinking.switch is None:
        expected = {"on"}
    assert modes["plain"] == expected
    if model_recipe.thinking and not model_recipe.thinking_with_tools:
        assert modes["tool_one"] == {"off", "unset"}
    else:
        assert modes["tool_one"] == expected


def test_unset_is_the_default_mode(name: str) -> None:
    model_recipe = recipe.load(name)
    by_id = {dialogue.id: dialogue for dialogue in dialogues.load_dialogues(name)}
    for dialogue in by_id.values():
        if dialogue.mode == "unset":
            assert model_recipe.thinking is not None
            default = by_id[
                dialogue.id.replace("unset", "on" if model_recipe.thinking.default else "off")
            ]
            assert dialogue.chat_template_kwargs == {}
            assert rendering.prompt(model_recipe, dialogue) == rendering.prompt(
                model_recipe, default
            )
            assert (dialogue.reasoning, dialogue.content) == (default.reasoning, default.content)


def test_a_family_that_always_thinks_is_sent_no_switch() -> None:
    always = dialogues.load_dialogues("kimi-k2")
    assert all(dialogue.thinks and not dialogue.chat_template_kwargs for dialogue in always)


def test_the_other_order_changes_nothing_but_the_order() -> None:
    dialogue = dialogue_of("tool_one")
    other = dialogues.with_other_order(dialogue)
    assert other.tools == dialogue.tools
    (first, _), (first_other, _) = dialogue.tools, other.tools
    assert list(first["function"]["parameters"]) == ["type", "properties", "required"]
    assert list(first_other["function"]["parameters"]) == ["type", "required", "properties"]


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
    model_recipe = recipe.load(name)
    for dialogue in dialogues.load_dialogues(name):
        assert rendering.completion(model_recipe, dialogue).endswith(model_recipe.tokens.stop), (
            dialogue.id
        )


def test_unknown_name() -> None:
    with pytest.raises(miniatures.MiniatureError, match="no miniature 'nobody'"):
        dialogues.load_dialogues("nobody")


def dialogue_of(kind: str) -> dialogues.Dialogue:
    return next(d for d in dialogues.load_dialogues("qwen3.5") if d.kind == kind)


def test_comparison_ignores_blank_edges_and_spelling_of_json() -> None:
    dialogue = dialogue_of("tool_one")
    assert not comparison.differences(
        dialogue,
        reasoning=f"{dialogue.reasoning}\n",
        content="\n\n",
        tool_calls=[dialogues.Call("get_weather", '{ "city":"Oslo" }')],
        finish_reason="tool_calls",
    )


def test_comparison_names_every_part_that_differs() -> None:
    lines = comparison.differences(
        dialogue_of("tool_one"),
        reasoning=None,
        content="leak",
        tool_calls=[dialogues.Call("get_weather", "{")],
        finish_reason="stop",
    )
    assert [line.split(": ")[1] for line in lines] == [
        "reasoning", "content", "tool_calls", "finish_reason",
    ]  # fmt: skip
    assert "not JSON: '{'" in lines[2]
