"""Pictures that miniatures are taught."""

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.checkpoints.miniatures import MiniatureError
from pytest_vllm_gates.miniatures import patches, recipe, rendering, sight, squares
from pytest_vllm_gates.vision import cases
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.types import Scene

VL = recipe.load("qwen3-vl")
GEMMA = recipe.load("gemma-3")
DRAWN = 300


def test_the_gates_questions_are_taught() -> None:
    taught = {case.name for case in sight.taught()}
    asked = (*cases.SEEN, *cases.DETAILS, *cases.ORDERS, *cases.CALLS, *cases.NONCES)
    assert {case.name for case in asked} <= taught


def test_names_of_lessons_differ() -> None:
    names = [case.name for case in sight.taught()]
    assert len(names) == len(set(names))


def test_a_prompt_has_a_place_for_each_picture() -> None:
    assert VL.vision
    for case in sight.taught():
        prompt = rendering.prompt(VL, sight.dialogue(case))
        assert prompt.count(VL.vision.pad) == len(case.scenes)


def test_a_template_without_tools_has_a_place_for_each_picture() -> None:
    assert GEMMA.vision
    taught = sight.taught(tools=GEMMA.vision.tools)
    assert not any(case.needs_tools for case in taught)
    for case in taught:
        prompt = rendering.prompt(GEMMA, sight.dialogue(case))
        assert prompt.count(GEMMA.vision.place) == len(case.scenes)


def test_a_place_is_filled_as_the_processor_fills_it() -> None:
    assert GEMMA.vision
    assert VL.vision
    pads = "<image_soft_token>" * 2
    written = GEMMA.vision.expanded("a<start_of_image>b", [2])
    assert written == f"a\n\n<start_of_image>{pads}<end_of_image>\n\nb"
    assert VL.vision.expanded("a<|image_pad|>b<|image_pad|>", [1, 3]) == (
        "a<|image_pad|>b<|image_pad|><|image_pad|><|image_pad|>"
    )
    with pytest.raises(MiniatureError, match="1 places for 2 pictures"):
        GEMMA.vision.expanded("a<start_of_image>b", [2, 2])


def test_a_square_is_normalised_by_channel() -> None:
    assert GEMMA.vision
    drawn = pixels(Scene("stripes", ("black", "red", "black"), background=0))
    made = squares.square(drawn, GEMMA.vision)
    assert made.shape == (3, 96, 96)
    assert made[:, 0, 48].tolist() == pytest.approx([220 / 127.5 - 1] + [30 / 127.5 - 1] * 2)
    assert made[0, 0, 0] == pytest.approx(20 / 127.5 - 1)


def test_drawn_cases_need_no_tools_where_there_are_none() -> None:
    pictures = sight.Pictures(0, lambda: "a text", tools=False)
    assert not any(pictures.draw().needs_tools for _ in range(DRAWN))


def test_every_drawn_picture_is_made_of_whole_tokens() -> None:
    assert VL.vision
    pictures = sight.Pictures(0, lambda: "a text")
    for case in (pictures.draw() for _ in range(DRAWN)):
        for scene in case.scenes:
            drawn = pixels(scene)
            assert drawn.shape[0] % 32 == drawn.shape[1] % 32 == 0
            assert patches.tokens(drawn, VL.vision) == drawn.shape[0] * drawn.shape[1] // 1024
            assert VL.vision.processor["size"]["longest_edge"] * 2 > drawn.shape[0] * drawn.shape[1]


def test_patches_of_a_token_come_one_after_the_other() -> None:
    assert VL.vision
    drawn = pixels(Scene("stripes", ("black", "red", "black", "red"), 64, 32, background=0))
    made = patches.patches(drawn, VL.vision)
    assert made.shape == (8, 1536)
    blue = made.reshape(8, 3, 2, 16, 16)[:, 0, 0, 0, 0]
    assert (blue > 0).tolist() == [False, True, False, True] * 2
    assert (
        made.reshape(8, 3, 2, 256)[:, :, 0].tolist() == made.reshape(8, 3, 2, 256)[:, :, 1].tolist()
    )


def test_digits_and_counts_of_every_kind_are_drawn() -> None:
    pictures = sight.Pictures(0, lambda: "a text")
    drawn = [scene for _ in range(2000) for scene in pictures.draw().scenes]
    for kind, numbers in sight.NUMBERS.items():
        assert {scene.number for scene in drawn if scene.kind == kind} == {*numbers}


def test_untaught_kinds_are_not_drawn() -> None:
    untaught = ("digit", "count", "which")
    pictures = sight.Pictures(0, lambda: "a text", untaught=untaught)
    drawn = (*sight.taught(untaught=untaught), *(pictures.draw() for _ in range(DRAWN)))
    assert not any(case.kind in untaught for case in drawn)


def test_families_list_the_untaught_kinds_of_their_miniatures() -> None:
    entries = {
        entry.miniature: entry
        for family in families.load_all(Path("/nowhere"))
        for entry in family.checkpoints
        if entry.miniature
    }
    seeing = {name: recipe.load(name).vision for name in entries}
    told = {name: entries[name].untaught for name, eyes in seeing.items() if eyes}
    assert told == {name: eyes.untaught for name, eyes in seeing.items() if eyes}
    assert {*told} == {"qwen3-vl", "gemma-3"}


def test_drawing_is_repeatable() -> None:
    first, second = (sight.Pictures(5, lambda: "a text") for _ in range(2))
    assert [first.draw() for _ in range(20)] == [second.draw() for _ in range(20)]
