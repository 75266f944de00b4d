"""Scenes as pixels: how many squares there are, and which digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_vllm_gates.vision import cases, draw
from pytest_vllm_gates.vision.types import COLOURS, Scene

SIDE = 96
HALF = SIDE // 2


def ink(scene: Scene) -> Any:
    """Return where a scene's colour is, as an array of truth values."""
    return (draw.pixels(scene) == COLOURS[scene.colours[0]]).all(axis=2)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_count_has_as_many_quarters_with_a_square(number: int) -> None:
    drawn = ink(Scene("count", number=number))
    quarters = [
        drawn[row : row + HALF, column : column + HALF] for row in (0, HALF) for column in (0, HALF)
    ]
    sizes = sorted(int(quarter.sum()) for quarter in quarters)
    assert sizes == [0] * (4 - number) + [24 * 24] * number


def test_squares_do_not_touch() -> None:
    drawn = ink(Scene("count", number=4, share=0.8))
    for line in (*drawn[HALF - 1 : HALF + 1], *drawn[:, HALF - 1 : HALF + 1].T):
        assert not line.any()


@pytest.mark.parametrize("number", range(10))
def test_a_digit_is_its_pattern_scaled(number: int) -> None:
    drawn = ink(Scene("digit", number=number, share=0.8))
    rows, columns = np.nonzero(drawn)
    pattern = draw.DIGITS[number].split()
    scale = round(0.8 * SIDE / 7)
    assert int(drawn.sum()) == sum(row.count("#") for row in pattern) * scale**2
    assert rows.max() - rows.min() + 1 == 7 * scale
    assert 0 < columns.min() <= columns.max() < SIDE - 1


def test_digits_differ() -> None:
    assert len({draw.pixels(Scene("digit", number=number)).tobytes() for number in range(10)}) == 10


def test_pairs_of_the_gate_differ_in_the_picture_alone() -> None:
    for one, other in zip(cases.DETAILS[::2], cases.DETAILS[1::2], strict=True):
        assert one.body(lambda _: "") == other.body(lambda _: "")
        assert one.expects != other.expects
        (first,), (second,) = one.scenes, other.scenes
        assert (first.width, first.height, {*first.colours}) == (
            second.width,
            second.height,
            {*second.colours},
        )


@pytest.mark.parametrize("colours", [("red", "blue"), ("blue", "red")])
def test_two_squares_are_side_by_side(colours: tuple[str, str]) -> None:
    drawn = draw.pixels(Scene("which", colours, share=0.8))
    for half, colour in zip((drawn[:, :HALF], drawn[:, HALF:]), colours, strict=True):
        assert int((half == COLOURS[colour]).all(axis=2).sum()) == round(0.8 * HALF) ** 2


def test_red_one_of_two_is_named_by_its_side() -> None:
    assert Scene("which", ("red", "blue")).words == ("left",)
    assert Scene("which", ("blue", "red")).words == ("right",)
