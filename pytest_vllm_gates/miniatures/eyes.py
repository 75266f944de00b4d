"""The vision towers of miniatures: their initial weights, and their inputs."""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.functional import linear

from pytest_vllm_gates.miniatures import patches, squares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.miniatures.recipe import Eyes, Recipe
    from pytest_vllm_gates.vision.draw import Pixels

POSITIONS = 0.5
"""Size of the waves that mark positions, beside patches of about one."""
PROJECTED = 0.03
"""Size of the weights that scale a feature of SigLIP's to the size of a word's."""


class Tower(Protocol):
    """One kind of vision tower in training."""

    ways: int
    """The number of ways in which a server may let a picture's tokens see each other; all are
    taught."""

    def open(self, model: Any) -> None:
        """Prepare a model that is not trained."""

    def tokens(self, pixels: Pixels) -> int:
        """Return how many tokens represent a picture."""

    def read(self, pixels: Pixels) -> Any:
        """Return a picture as the tower reads it."""

    def inputs(self, ids: torch.Tensor, pictures: Sequence[Any], way: int) -> dict[str, Any]:
        """Return a model's inputs in addition to token ids (rows, width); `way` counts from 0."""


def of(recipe: Recipe) -> Tower | None:
    """Return the kind of tower of a recipe, by its processor."""
    if recipe.vision is None:
        return None
    kinds: dict[str, type[PatchTower | SquareTower]] = {
        "Qwen3VLProcessor": PatchTower,
        "Gemma3Processor": SquareTower,
    }
    return kinds[recipe.vision.processor_class](recipe.vision)


class PatchTower:
    """Qwen3-VL's tower, which reads patches of pictures of any size."""

    ways = 1

    def __init__(self, vision: Eyes) -> None:
        self._vision = vision
        self._pad_id = 0

    def open(self, model: Any) -> None:
        """Begin with positions that are far apart, and read patches as cheaply as possible.

        The projection of patches stays as it was drawn. A patch has hundreds of similar values, and
        one step of Adam moves them all: trained, it was a hundred times the size of the positions,
        which the tower could then not see.
        """
        self._pad_id = model.config.image_token_id
        visual = model.model.visual
        _set_positions(visual.pos_embed.weight)
        visual.patch_embed.proj.requires_grad_(requires_grad=False)
        visual.patch_embed.forward = types.MethodType(_patches, visual.patch_embed)

    def tokens(self, pixels: Pixels) -> int:
        """Return how many tokens represent a picture."""
        return patches.tokens(pixels, self._vision)

    def read(self, pixels: Pixels) -> Any:
        """Return a picture's patches and their grid."""
        return patches.patches(pixels, self._vision), patches.grid(pixels, self._vision)

    def inputs(self, ids: torch.Tensor, pictures: Sequence[Any], way: int) -> dict[str, Any]:
        """Return patches, grids and where pictures are."""
        del way
        return {
            "pixel_values": torch.cat([torch.from_numpy(made) for made, _ in pictures]),
            "image_grid_thw": torch.tensor([grid for _, grid in pictures]),
            "mm_token_type_ids": (ids == self._pad_id).int(),
        }


class SquareTower:
    """SigLIP as Gemma 3 has it, which reads squares of one size.

    The tokens of a picture see each other, the later ones, too. vLLM's attention on CPUs has no
    such mask and lets them see the earlier ones alone (0.32.0, v1/attention/backends/cpu_attn.py),
    so that both are taught: way 0 is transformers', way 1 that of vLLM on CPUs.
    """

    ways = 2

    def __init__(self, vision: Eyes) -> None:
        self._vision = vision
        self._pad_id = 0

    def open(self, model: Any) -> None:
        """Begin as `PatchTower` does, with features of the size of words."""
        self._pad_id = model.config.image_token_id
        embeddings = model.model.vision_tower.embeddings
        _set_positions(embeddings.position_embedding.weight)
        embeddings.patch_embedding.requires_grad_(requires_grad=False)
        # Untouched it is zero.
        projection = model.model.multi_modal_projector.mm_input_projection_weight
        torch.nn.init.normal_(projection, std=PROJECTED)

    def tokens(self, pixels: Pixels) -> int:
        """Return how many tokens represent a picture."""
        return squares.tokens(pixels, self._vision)

    def read(self, pixels: Pixels) -> Any:
        """Return a picture as a square."""
        return squares.square(pixels, self._vision)

    def inputs(self, ids: torch.Tensor, pictures: Sequence[Any], way: int) -> dict[str, Any]:
        """Return squares and, in way 0, which tokens see each other."""
        pixel_values = torch.stack([torch.from_numpy(square) for square in pictures])
        if way:
            return {"pixel_values": pixel_values}
        return {"pixel_values": pixel_values, "token_type_ids": (ids == self._pad_id).int()}


def _set_positions(embedding: Any) -> None:
    with torch.no_grad():
        embedding.copy_(POSITIONS * waves(*embedding.shape))


def waves(places: int, width: int) -> torch.Tensor:
    """Return sines and cosines of rows and columns for a square of places: (places, width).

    The usual small random numbers are drowned by the patches.
    """
    side = math.isqrt(places)
    axis = torch.linspace(-1, 1, side)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    speeds = torch.arange(1, width // 4 + 1) * math.pi / 4
    angles = [place.reshape(-1, 1) * speeds for place in (rows, columns)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1)


def _patches(embed: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Embed patches of shape (patches, values): a convolution over whole patches is a product."""
    weight = embed.proj.weight
    return linear(pixels.to(weight.dtype), weight.view(weight.shape[0], -1), embed.proj.bias)
