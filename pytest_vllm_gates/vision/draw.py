"""Draws scenes as arrays of pixels. Training and gates draw with the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_vllm_gates.vision.types import COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.vision.types import Scene

    Pixels = np.ndarray[Any, np.dtype[np.uint8]]

# Digits on five columns and seven rows; `#` is ink.
DIGITS = (
    ".###. #...# #..## #.#.# ##..# #...# .###.",
    "..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.",
    ".###. #...# ....# ...#. ..#.. .#... #####",
    "##### ...#. ..#.. ...#. ....# #...# .###.",
    "...#. ..##. .#.#. #..#. ##### ...#. ...#.",
    "##### #.... ####. ....# ....# #...# .###.",
    "..##. .#... #.... ####. #...# #...# .###.",
    "##### ....# ...#. ..#.. .#... .#... .#...",
    ".###. #...# #...# .###. #...# #...# .###.",
    ".###. #...# #...# .#### ....# ...#. .##..",
)
CELLS = ((0, 0), (1, 1), (0, 1), (1, 0))
"""Quarters of a picture as row and column, in the order in which squares fill them."""


def pixels(scene: Scene) -> Pixels:
    """Return a scene's pixels with shape (height, width, 3): red, green, blue."""
    canvas = np.full((scene.height, scene.width, 3), scene.background, dtype=np.uint8)
    _DRAW[scene.kind](canvas, scene)
    return canvas


def _plain(canvas: Pixels, scene: Scene) -> None:
    canvas[:] = COLOURS[scene.colours[0]]


def _square(canvas: Pixels, scene: Scene) -> None:
    side = max(1, round(scene.share * min(scene.width, scene.height)))
    left, top = (scene.width - side) // 2, (scene.height - side) // 2
    left = {"left": 0, "right": scene.width - side}.get(scene.place, left)
    top = {"top": 0, "bottom": scene.height - side}.get(scene.place, top)
    canvas[top : top + side, left : left + side] = COLOURS[scene.colours[0]]


def _stripes(canvas: Pixels, scene: Scene) -> None:
    edges = np.linspace(0, scene.width, len(scene.colours) + 1).round().astype(int)
    for colour, begin, end in zip(scene.colours, edges, edges[1:], strict=False):
        canvas[:, begin:end] = COLOURS[colour]


def _digit(canvas: Pixels, scene: Scene) -> None:
    rows = DIGITS[scene.number].split()
    scale = max(1, round(scene.share * min(scene.width, scene.height) / len(rows)))
    ink = np.array([[mark == "#" for mark in row] for row in rows])
    ink = ink.repeat(scale, axis=0).repeat(scale, axis=1)
    top, left = (scene.height - ink.shape[0]) // 2, (scene.width - ink.shape[1]) // 2
    canvas[top : top + ink.shape[0], left : left + ink.shape[1]][ink] = COLOURS[scene.colours[0]]


def _two(canvas: Pixels, scene: Scene) -> None:
    half = scene.width // 2
    side = max(1, round(scene.share * min(half, scene.height)))
    top = (scene.height - side) // 2
    for number, colour in enumerate(scene.colours):
        left = number * half + (half - side) // 2
        canvas[top : top + side, left : left + side] = COLOURS[colour]


def _count(canvas: Pixels, scene: Scene) -> None:
    side = max(1, round(scene.share * min(scene.width, scene.height) / 2))
    for row, column in CELLS[: scene.number]:
        top = row * scene.height // 2 + (scene.height // 2 - side) // 2
        left = column * scene.width // 2 + (scene.width // 2 - side) // 2
        canvas[top : top + side, left : left + side] = COLOURS[scene.colours[0]]


_DRAW: dict[str, Callable[[Pixels, Scene], None]] = {
    "colour": _square, "place": _square, "stripes": _stripes, "digit": _digit, "count": _count,
    "plain": _plain, "which": _two,
}  # fmt: skip
