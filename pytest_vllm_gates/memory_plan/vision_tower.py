"""Counts the parameters of a vision tower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

# The keys of towers whose parts are known one by one. Qwen3-VL's
# (transformers 5.19.0, models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLVisionModel):
QWEN3_VL = (
    "hidden_size", "depth", "intermediate_size", "out_hidden_size", "num_position_embeddings",
    "patch_size", "spatial_merge_size", "temporal_patch_size", "in_channels",
)  # fmt: skip
DEEPSTACK = "deepstack_visual_indexes"
"""The depths whose features go into the language model, each through its own merger."""
# Gemma 3's SigLIP (models/siglip/modeling_siglip.py, SiglipVisionTransformer) with its projector
# (models/gemma3/modeling_gemma3.py, Gemma3MultiModalProjector):
SIGLIP = ("hidden_size", "num_hidden_layers", "intermediate_size", "image_size", "patch_size")


def parts(config: Mapping[str, Any], hidden: int) -> list[ParameterPart]:
    """Return a tower's parts; an unknown kind is estimated as a plain transformer with a projector.

    `hidden` is the width of the language model.
    """
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return []
    if _is_qwen3_vl(tower):
        count = _qwen3_vl(tower)
    elif _is_gemma_3(config, tower):
        count = _gemma_3(tower, hidden)
    else:
        count = _plain(tower, hidden)
    return [ParameterPart(Role.VISION, count)] if count else []


def is_known(config: Mapping[str, Any]) -> bool:
    """Return whether a config defines its tower's size completely."""
    tower = config.get("vision_config")
    return isinstance(tower, dict) and (_is_qwen3_vl(tower) or _is_gemma_3(config, tower))


def _is_qwen3_vl(tower: Mapping[str, Any]) -> bool:
    return isinstance(tower.get(DEEPSTACK), list) and _says(tower, QWEN3_VL)


def _is_gemma_3(config: Mapping[str, Any], tower: Mapping[str, Any]) -> bool:
    # There is an additional pooling head, unless it is turned off.
    return (
        config.get("model_type") == "gemma3"
        and tower.get("vision_use_head") is False
        and _says(tower, SIGLIP)
    )


def _says(tower: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return all(isinstance(tower.get(key), int) and tower[key] > 0 for key in keys)


def _qwen3_vl(tower: Mapping[str, Any]) -> int:
    width, depth, inner, out, positions, patch, merge, frames, channels = (
        tower[key] for key in QWEN3_VL
    )
    merged = merge * merge * width
    patches = channels * frames * patch * patch * width + width
    merger = merged * merged + merged + merged * out + out
    deep = len(tower[DEEPSTACK]) * (merger + 2 * merged)
    blocks = depth * _block(width, inner)
    return int(patches + positions * width + blocks + merger + 2 * width + deep)


def _gemma_3(tower: Mapping[str, Any], hidden: int) -> int:
    width, depth, inner, image, patch = (tower[key] for key in SIGLIP)
    channels = tower.get("num_channels", 3)  # SiglipVisionConfig's default
    patches = channels * patch * patch * width + width
    positions = (image // patch) ** 2 * width
    projector = width * hidden + width
    return int(patches + positions + depth * _block(width, inner) + 2 * width + projector)


def _block(width: int, inner: int) -> int:
    """Return a block's parameters: attention, two layers, two norms, a bias for each of them."""
    return 4 * width * width + 2 * width * inner + inner + 9 * width


def _plain(tower: Mapping[str, Any], hidden: int) -> int:
    width = tower.get("hidden_size") or tower.get("embed_dim")
    depth = tower.get("depth") or tower.get("num_hidden_layers")
    if not isinstance(width, int) or not isinstance(depth, int):
        return 0
    inner = tower.get("intermediate_size")
    inner = inner if isinstance(inner, int) else 4 * width
    return depth * (4 * width * width + 2 * width * inner) + width * hidden
