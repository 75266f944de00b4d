"""Pixels as the squares of one size that Gemma 3 reads, as its processor makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pytest_vllm_gates.miniatures.recipe import Eyes
    from pytest_vllm_gates.vision.draw import Pixels


def tokens(_: Pixels, vision: Eyes) -> int:
    """Return how many tokens represent a picture in a prompt: the same number for each."""
    return int(vision.config["mm_tokens_per_image"])


def square(pixels: Pixels, vision: Eyes) -> Any:
    """Return an array of shape (3, side, side) of pixels with shape (height, width, 3)."""
    side = vision.tower["image_size"]
    drawn = pixels.transpose(2, 0, 1).astype(np.float32)
    if drawn.shape[1:] != (side, side):
        drawn = _resized(drawn, side)
    mean, deviation = (
        np.array(vision.processor[key], dtype=np.float32).reshape(3, 1, 1)
        for key in ("image_mean", "image_std")
    )
    return (drawn / 255 - mean) / deviation


def _resized(drawn: Any, side: int) -> Any:
    """Resize as torchvision resizes a tensor of bytes."""
    import torch  # noqa: PLC0415 - what is drawn in the tower's size needs none
    from torch.nn.functional import interpolate  # noqa: PLC0415

    whole = interpolate(
        torch.from_numpy(drawn)[None], size=(side, side), mode="bilinear", antialias=True
    )
    return whole[0].round().clamp(0, 255).numpy()
