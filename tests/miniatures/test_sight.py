"""Pictures that miniatures are taught."""

from pytest_vllm_gates.miniatures import patches, recipe, rendering, sight
from pytest_vllm_gates.vision import cases
from pytest_vllm_gates.vision.draw import pixels
from pytest_vllm_gates.vision.types import Scene

VL = recipe.load("qwen3-vl")
DRAWN = 300


def test_what_the_gate_asks_is_taught() -> None:
    taught = {case.name for case in sight.taught()}
    asked = (*cases.SEEN, *cases.ORDERS, *cases.CALLS, *cases.NONCES)
    assert {case.name for case in asked} <= taught


def test_names_of_what_is_taught_differ() -> None:
    names = [case.name for case in sight.taught()]
    assert len(names) == len(set(names))


def test_a_prompt_has_a_place_for_each_picture() -> None:
    assert VL.vision
    for case in sight.taught():
        prompt = rendering.prompt(VL, sight.dialogue(case))
        assert prompt.count(VL.vision.pad) == len(case.scenes)


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


def test_drawing_is_repeatable() -> None:
    first, second = (sight.Pictures(5, lambda: "a text") for _ in range(2))
    assert [first.draw() for _ in range(20)] == [second.draw() for _ in range(20)]
