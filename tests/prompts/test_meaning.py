"""Properties that a prompt must have, whatever was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.goldens import Refused, Rendering
from pytest_vllm_gates.prompts import meaning

QWEN = families.load("qwen3.5", Path("/nowhere"))
GLM = families.load("glm", Path("/nowhere"))
USER = "<|im_start|>user\nHi<|im_end|>\n"
OPENS = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_a_prompt_that_opens_as_in_the_family_file_is_right() -> None:
    assert meaning.wrong_opening(QWEN, USER + OPENS, thinks=True) is None
    assert meaning.wrong_opening(QWEN, USER + CLOSED, thinks=False) is None


@pytest.mark.parametrize(
    ("prompt", "thinks", "sentence"),
    [
        (USER, True, "does not open an assistant turn"),
        (USER + CLOSED, True, "is not opened"),
        (USER + OPENS, False, "is left open"),
        (OPENS + USER, True, "a user turn follows"),
    ],
)
def test_another_opening_is_a_fault(prompt: str, thinks: bool, sentence: str) -> None:
    assert sentence in str(meaning.wrong_opening(QWEN, prompt, thinks=thinks))


def test_without_thinking_only_the_turn_is_checked() -> None:
    plain = families.load("gemma/3", Path("/nowhere"))
    assert plain.thinking is None
    prompt = f"{plain.prompt.user}Hi{plain.prompt.assistant}"
    assert meaning.wrong_opening(plain, prompt, thinks=True) is None
    assert meaning.wrong_opening(plain, prompt + plain.prompt.user, thinks=True) is not None
    assert meaning.wrong_opening(QWEN, USER + CLOSED, thinks=None) is None
    assert meaning.parser_disagrees(plain, "qwen3") is None
    assert meaning.parser_disagrees(QWEN, None) is None


@pytest.mark.parametrize(("marker", "count"), [(None, 0), ("<|system|>", 1)])
def test_a_system_turn_is_checked_if_the_family_has_one(marker: str | None, count: int) -> None:
    prompt = GLM.prompt.model_copy(update={"system": marker})
    family = GLM.model_copy(update={"prompt": prompt})
    assert len(meaning.missing_markers(family, "", ["system"])) == count


def test_a_missing_role_marker_is_counted() -> None:
    sentences = meaning.missing_markers(QWEN, "Hi<|im_end|>\n" + OPENS, ["user"])
    assert sentences == ["1 user turns, and 0 times the marker '<|im_start|>user\\n'"]


def test_parser_and_template_defaults_that_differ_are_a_fault() -> None:
    small = families.load("qwen3.5/small", Path("/nowhere"))
    assert "assumes that the model thinks" in str(meaning.parser_disagrees(small, "qwen3"))
    assert meaning.parser_disagrees(QWEN, "qwen3") is None
    assert meaning.parser_disagrees(GLM, "deepseek_v3") is not None
    assert meaning.parser_disagrees(QWEN, "some_plugin_of_ours") is None


def test_wrong_stops_are_faults_in_the_users_words() -> None:
    stop_tokens = ("<|im_end|>", "<|endoftext|>")
    right = {"<|im_end|>": "stop", "<|endoftext|>": "stop", "<think>": "length", "id 999": None}
    assert meaning.wrong_stops(right, stop_tokens) == []
    runs_on, cut = meaning.wrong_stops({"<|im_end|>": "length", "<think>": "stop"}, stop_tokens)
    assert "goes on after '<|im_end|>': answers run on past their end" in runs_on
    assert "stops at '<think>', which ends no answer of this family: answers that contain" in cut
    assert "goes on after" in meaning.wrong_stops({"<|im_end|>": None}, stop_tokens)[0]


def test_stop_ids_of_files_and_family_are_compared() -> None:
    assert meaning.stops_disagree({"<eos>": [1]}, {1}) is None
    assert "<eos> ends an answer" in str(meaning.stops_disagree({"<eos>": [1]}, {2}))
    assert "<eos> ends an answer" in str(meaning.stops_disagree({"<eos>": [1, 2]}, {1}))
    assert "also stops at the ids [7], which" in str(meaning.stops_disagree({"<eos>": [1]}, {1, 7}))


TURN = {"role": "user", "content": "{{ x }}"}
PROMPT = Rendering("x", (1,), ("x",))


@pytest.mark.parametrize(
    ("body", "plain", "sentence"),
    [
        ({"messages": [TURN]}, PROMPT, "takes the same turns with plain texts"),
        ({"messages": [TURN]}, Refused("no"), "refuses turns of user and assistant, which every"),
        ({"messages": [{"role": "system", "content": "x"}, TURN]}, Refused("no"), None),
        ({"messages": [TURN], "tools": [{}]}, Refused("no"), None),
        ({"messages": [TURN], "tools": [{}]}, PROMPT, "takes the same turns with plain texts"),
    ],
    ids=["of a text", "of every turn", "of system", "of tools", "of a text with tools"],
)
def test_a_refusal_of_an_accepted_shape_is_a_fault(
    body: dict[str, Any], plain: Rendering | Refused, sentence: str | None
) -> None:
    fault = meaning.wrong_refusal(body, Refused("unexpected"), plain)
    assert fault is None if sentence is None else sentence in str(fault)
    assert fault is None or "unexpected" in fault
