"""How many tokens an image has."""

from __future__ import annotations

import pytest

from pytest_vllm_gates.catalog.vision import Vision
from pytest_vllm_gates.vision import sizes

PUBLISHED = Vision(
    pad="<|image_pad|>", rule="patches", patch=16, merge=2, least_pixels=65536,
    most_pixels=16777216,
)  # fmt: skip
SMALL = {
    "size": {"shortest_edge": 4096, "longest_edge": 65536}, "patch_size": 16, "merge_size": 2,
}  # fmt: skip


# The sizes of transformers' Qwen2VLImageProcessor 5.19.0, with `size` as in SMALL.
@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((64, 64), (64, 64)),
        ((1, 1), (64, 64)),
        ((101, 77), (96, 64)),
        ((2000, 2000), (256, 256)),
        ((600, 12), (480, 32)),
        ((96, 160), (96, 160)),
        ((1000, 5), (928, 32)),
    ],
)
def test_an_image_is_resized_to_whole_tokens(
    size: tuple[int, int], resized: tuple[int, int]
) -> None:
    image_sizes = sizes.sizes(PUBLISHED, SMALL)
    assert image_sizes.resized(*size) == resized
    assert image_sizes.tokens(*size) == resized[0] * resized[1] // 1024


def test_a_checkpoint_without_a_processor_has_the_family_sizes() -> None:
    image_sizes = sizes.sizes(PUBLISHED, {})
    assert image_sizes.tokens(64, 64) == 64
    assert image_sizes.tokens(1920, 1080) == 60 * 34


def test_a_thread_of_an_image_has_no_size() -> None:
    with pytest.raises(ValueError, match="over 200 times"):
        sizes.sizes(PUBLISHED, SMALL).tokens(1000, 1)


def test_some_families_have_as_many_tokens_whatever_the_size() -> None:
    fixed = Vision(pad="<image_soft_token>", rule="fixed", tokens=256)
    assert sizes.sizes(fixed, SMALL).tokens(1, 1000) == 256


def test_the_processors_text_has_a_place_for_the_tokens() -> None:
    with pytest.raises(ValueError, match="written has no PADS: '<image>'"):
        Vision(pad="<image_soft_token>", rule="fixed", tokens=256, written="<image>")


# The sizes of transformers' Gemma4ImageProcessor 5.19.0.
@pytest.mark.parametrize(
    ("size", "tokens"),
    [((64, 64), 256), ((1920, 1080), 264), ((100, 2000), 222), ((10, 4000), 280), ((1, 1), 256)],
)
def test_a_budget_is_spent_as_the_aspect_allows(size: tuple[int, int], tokens: int) -> None:
    budget = Vision(pad="<|image|>", rule="budget", patch=16, merge=3, tokens=280)
    assert sizes.sizes(budget, {}).tokens(*size) == tokens


# The sizes of transformers' Glm4vImageProcessor 5.19.0.
@pytest.mark.parametrize(
    ("size", "tokens"), [((64, 64), 9), ((1920, 1080), 2691), ((20, 56), 10), ((5, 900), 180)]
)
def test_an_image_counts_as_two_frames(size: tuple[int, int], tokens: int) -> None:
    frames = Vision(
        pad="<|image|>", rule="frames", patch=14, merge=2, least_pixels=12544, most_pixels=9633792
    )
    assert sizes.sizes(frames, {}).tokens(*size) == tokens


@pytest.mark.parametrize("rule", ["patches", "frames", "budget", "fixed"])
def test_a_rule_without_its_figures_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=f"rule '{rule}' needs"):
        Vision(pad="<image>", rule=rule)  # type: ignore[arg-type]
