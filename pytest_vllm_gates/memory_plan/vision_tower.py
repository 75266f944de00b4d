"""Counts the parameters of a vision tower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

# The keys of a tower whose parts are known one by one, Qwen3-VL's
# (transformers 5.19.0, models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLVisionModel).
KNOWN = (
    "hidden_size", "depth", "intermediate_size", "out_hidden_size", "num_position_embeddings",
    "patch_size", "spatial_merge_size", "temporal_patch_size", "in_channels",
)  # fmt: skip
DEEPSTACK = "deepstack_visual_indexes"
"""The depths whose features go into the language model, each by a merger of its own."""


def parts(config: Mapping[str, Any], hidden: int) -> list[ParameterPart]:
    """Return a tower's parts; one of another kind about, as a plain transformer and its way in.

    `hidden` is the width of the language model.
    """
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return []
    count = _known(tower) if is_known(tower) else _plain(tower, hidden)
    return [ParameterPart(Role.VISION, count)] if count else []


def is_known(tower: Mapping[str, Any]) -> bool:
    """Return whether a tower's config says all that decides its size."""
    return isinstance(tower.get(DEEPSTACK), list) and all(
        isinstance(tower.get(key), int) for key in KNOWN
    )


def _known(tower: Mapping[str, Any]) -> int:
    width, depth, inner, out, positions, patch, merge, frames, channels = (
        tower[key] for key in KNOWN
    )
    merged = merge * merge * width
    patches = channels * frames * patch * patch * width + width
    block = 4 * width * width + 2 * width * inner + inner + 9 * width
    merger = merged * merged + merged + merged * out + out
    deep = len(tower[DEEPSTACK]) * (merger + 2 * merged)
    return int(patches + positions * width + depth * block + merger + 2 * width + deep)


def _plain(tower: Mapping[str, Any], hidden: int) -> int:
    width = tower.get("hidden_size") or tower.get("embed_dim")
    depth = tower.get("depth") or tower.get("num_hidden_layers")
    if not isinstance(width, int) or not isinstance(depth, int):
        return 0
    inner = tower.get("intermediate_size")
    inner = inner if isinstance(inner, int) else 4 * width
    return depth * (4 * width * width + 2 * width * inner) + width * hidden
