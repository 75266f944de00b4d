"""The tables of sines and cosines that rotary embeddings keep on each device.

vLLM 0.32 makes one for each kind of rotary embedding (`get_rope`, `_compute_cos_sin_cache`), with
all positions: `max_position_embeddings`, times the factor if it is scaled linearly or by YaRN.
Checkpoint files do not contain them, but vLLM counts them as part of the model: Gemma 3 with a
factor of 8 has 576 MiB of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan.config import model_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving

FROM_ORIGINAL = ("yarn", "deepseek_yarn")
"""Kinds that are scaled from the length before scaling."""
SCALED = ("linear", *FROM_ORIGINAL)
SCALINGS = ("rope_scaling", "rope_parameters")
LOCAL = "rope_local_base_freq"
"""Gemma 3: its windows have their own rotary embedding, which is not scaled."""
MOST_POSITIONS = 2**28


def bytes_of(shape: ModelShape, serving: Serving) -> int:
    """Return the bytes of the tables on one device; 0 if the config does not define them."""
    config = shape.config
    width, positions = _width(config), _integer(config.get("max_position_embeddings"))
    if not width or not positions:
        return 0
    try:
        element = model_bytes(shape, serving)
    except UserError:
        return 0
    own = positions if config.get(LOCAL) else 0
    return min(_scaled(config, positions) + own, MOST_POSITIONS) * width * element


def _width(config: Mapping[str, Any]) -> int:
    """Return how many elements of a head are rotated."""
    if latent := _integer(config.get("qk_rope_head_dim")):
        return latent
    heads = _integer(config.get("num_attention_heads"))
    width = _integer(config.get("head_dim")) or (
        _integer(config.get("hidden_size")) // heads if heads else 0
    )
    share = config.get("partial_rotary_factor")
    if isinstance(share, int | float) and 0 < share < 1:
        return int(width * share)
    return width


def _scaled(config: Mapping[str, Any], positions: int) -> int:
    scaling: Mapping[str, Any] = next(
        (config[name] for name in SCALINGS if isinstance(config.get(name), dict)), {}
    )
    kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
    if kind not in SCALED or not isinstance(factor, int | float) or not factor >= 1:
        return positions
    before = _integer(scaling.get("original_max_position_embeddings")) or positions
    return int(min((before if kind in FROM_ORIGINAL else positions) * factor, MOST_POSITIONS))


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
