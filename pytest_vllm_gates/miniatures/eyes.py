"""The vision tower of a miniature before it is trained."""

from __future__ import annotations

import math
import types
from typing import Any

import torch
from torch.nn.functional import linear

POSITIONS = 0.5
"""Size of the waves that tell positions apart, beside patches of about one."""


def open_eyes(model: Any) -> None:
    """Begin with positions that are far apart, and read patches as cheaply as possible.

    The projection of patches stays as it was drawn. A patch has hundreds of values that are alike,
    and one step of Adam moves them all: trained, it was a hundred times the size of the positions,
    which the tower could then not see.
    """
    visual = model.model.visual
    embedding = visual.pos_embed.weight
    with torch.no_grad():
        embedding.copy_(POSITIONS * waves(*embedding.shape))
    visual.patch_embed.proj.requires_grad_(requires_grad=False)
    visual.patch_embed.forward = types.MethodType(_patches, visual.patch_embed)


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
