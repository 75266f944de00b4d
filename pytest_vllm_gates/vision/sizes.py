"""How many tokens an image has, by the checkpoint's processor and the family's rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.vision import Vision

MOST_ASPECT = 200
"""The ratio of the longer to the shorter side at which Qwen's and GLM's processors refuse."""
FRAMES = 2
"""GLM's processor counts an image as so many frames of a video."""


@dataclass(frozen=True)
class ImageSizes:
    """The facts that decide how many tokens an image has; pixels are of the resized image."""

    rule: str
    """The rule of `catalog.vision.Vision`."""
    step: int = 1
    """Pixels of a token's side."""
    least_pixels: int = 0
    most_pixels: int = 0
    most_tokens: int = 0
    """Tokens of each image, or the most of them."""

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height in pixels to which an image is resized.

        Raises `ValueError` where the processor does, for sides that are too unequal.
        """
        if self.rule == "budget":
            return self._within_budget(width, height)
        if self.rule == "frames" and min(width, height) < self.step:
            grow = max(self.step / width, self.step / height)
            width, height = int(width * grow), int(height * grow)
        return self._in_whole_tokens(width, height)

    def _in_whole_tokens(self, width: int, height: int) -> tuple[int, int]:
        """Resize as `smart_resize` of transformers' Qwen2VLImageProcessor does.

        Whole tokens, and no fewer and no more pixels than allowed.
        """
        if max(width, height) > MOST_ASPECT * min(width, height):
            raise ValueError(f"{width} x {height}: one side is over {MOST_ASPECT} times the other")
        columns, rows = round(width / self.step), round(height / self.step)
        if columns * rows * self.step**2 > self.most_pixels:
            shrink = math.sqrt(width * height / self.most_pixels)
            columns = max(1, math.floor(width / shrink / self.step))
            rows = max(1, math.floor(height / shrink / self.step))
        elif columns * rows * self.step**2 < self.least_pixels:
            grow = math.sqrt(self.least_pixels / (width * height))
            columns, rows = (math.ceil(side * grow / self.step) for side in (width, height))
        return columns * self.step, rows * self.step

    def _within_budget(self, width: int, height: int) -> tuple[int, int]:
        """Resize to the most tokens that keep the aspect, as transformers' Gemma4ImageProcessor."""
        grow = math.sqrt(self.most_tokens * self.step**2 / (width * height))
        columns, rows = (math.floor(side * grow / self.step) for side in (width, height))
        if not columns and not rows:
            raise ValueError(f"{width} x {height}: no token is left of it")
        if not rows:
            columns, rows = min(width // height, self.most_tokens), 1
        elif not columns:
            columns, rows = 1, min(height // width, self.most_tokens)
        return columns * self.step, rows * self.step

    def tokens(self, width: int, height: int) -> int:
        """Return how many tokens an image of a size in pixels has."""
        if self.rule == "fixed":
            return self.most_tokens
        resized_width, resized_height = self.resized(width, height)
        return resized_width * resized_height // self.step**2


def sizes(vision: Vision, processor: Mapping[str, Any]) -> ImageSizes:
    """Return the sizes of a checkpoint: its `preprocessor_config.json`, or else the family's."""
    patch = processor.get("patch_size", vision.patch)
    if vision.rule == "fixed":
        tokens = processor.get("image_seq_length", vision.tokens)
        return ImageSizes("fixed", most_tokens=tokens)
    if vision.rule == "budget":
        merge = processor.get("pooling_kernel_size", vision.merge)
        tokens = processor.get("max_soft_tokens", vision.tokens)
        return ImageSizes("budget", step=patch * merge, most_tokens=tokens)
    size = processor.get("size")
    size = size if isinstance(size, dict) else {}
    plain = ImageSizes(
        vision.rule,
        step=patch * processor.get("merge_size", vision.merge),
        least_pixels=size.get("shortest_edge", vision.least_pixels),
        most_pixels=size.get("longest_edge", vision.most_pixels),
    )
    if vision.rule == "patches":
        return plain
    frames = processor.get("temporal_patch_size", FRAMES)
    least, most = (pixels // frames for pixels in (plain.least_pixels, plain.most_pixels))
    return replace(plain, least_pixels=least, most_pixels=most)
