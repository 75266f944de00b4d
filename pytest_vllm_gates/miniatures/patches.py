"""Pixels as the patches that a vision tower of Qwen's reads, as its processor makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pytest_vllm_gates.miniatures.recipe import Eyes
    from pytest_vllm_gates.vision.draw import Pixels


def grid(pixels: Pixels, vision: Eyes) -> tuple[int, int, int]:
    """Return how many patches a picture has in time, height and width."""
    side = vision.tower["patch_size"]
    return 1, pixels.shape[0] // side, pixels.shape[1] // side


def tokens(pixels: Pixels, vision: Eyes) -> int:
    """Return how many tokens represent a picture in a prompt."""
    _, rows, columns = grid(pixels, vision)
    return int(rows * columns // vision.tower["spatial_merge_size"] ** 2)


def patches(pixels: Pixels, vision: Eyes) -> Any:
    """Return an array of shape (patches, values) of pixels whose sides fit the patches.

    Patches that are merged later come one after the other, each with its channels, its frames
    (twice the same), its rows and its columns.
    """
    side, merged = vision.tower["patch_size"], vision.tower["spatial_merge_size"]
    frames = vision.tower["temporal_patch_size"]
    _, rows, columns = grid(pixels, vision)
    mean = np.array(vision.processor["image_mean"], dtype=np.float32)
    deviation = np.array(vision.processor["image_std"], dtype=np.float32)
    scaled = ((pixels.astype(np.float32) / 255 - mean) / deviation).transpose(2, 0, 1)
    split = scaled.reshape(3, rows // merged, merged, side, columns // merged, merged, side)
    ordered = split.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    return np.repeat(ordered, frames, axis=5).reshape(rows * columns, 3 * frames * side * side)
