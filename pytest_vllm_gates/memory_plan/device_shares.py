"""The weights that each pipeline stage stores on one device, as vLLM divides them.

Read from vLLM 0.32: `get_pp_indices` (layers of a stage), `VocabParallelEmbedding` (padded to 64
words), `QKVParallelLinear` (key-value heads are copied if there are fewer than devices),
`mxfp4_round_up_hidden_size_and_intermediate_size` (experts in MXFP4 are padded on each device).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pytest_vllm_gates.memory_plan import kv_cache, quantisation
from pytest_vllm_gates.memory_plan.parameter_parts import Role
from pytest_vllm_gates.memory_plan.types import CacheKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.memory_plan.parameter_parts import ParameterPart
    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving

VOCABULARY_STEP = 64
PADDED_HIDDEN, PADDED_INNER = 256, 128
KEYS = (".self_attn.k_proj", ".self_attn.v_proj")


def per_stage(
    sizes: Sequence[tuple[ParameterPart, float]],
    shape: ModelShape,
    serving: Serving,
    *,
    tied: bool,
) -> list[float]:
    """Return the bytes on one device of each stage; the largest one decides the cache."""
    count = serving.pipeline_parallel_size
    stages = kv_cache.stages(shape.layers, count)
    stage_of_layer = {layer: stage for stage, layers in enumerate(stages) for layer in layers}
    shares = [0.0] * count
    heads = {
        cache.layer: cache.heads
        for cache in shape.caches
        if cache.kind in {CacheKind.FULL, CacheKind.SLIDING, CacheKind.CHUNKED}
    }
    for part, size in sizes:
        on_device = size / _divisor(part, heads, shape, serving)
        for stage in _stages(part, stage_of_layer, count, tied=tied):
            shares[stage] += on_device
    return shares


def _stages(
    part: ParameterPart, stage_of_layer: dict[int, int], count: int, *, tied: bool
) -> set[int]:
    if part.layer is not None:
        return {stage_of_layer[part.layer]}
    if part.role is Role.EMBEDDING:
        return {0, count - 1} if tied else {0}
    # Each stage builds the vision tower; the head and the last norm are on the last stage.
    return set(range(count)) if part.role is Role.VISION else {count - 1}


def _divisor(
    part: ParameterPart, heads: dict[int, int], shape: ModelShape, serving: Serving
) -> float:
    devices = serving.tensor_parallel_size
    if part.replicated:
        return 1
    if part.role in {Role.EMBEDDING, Role.HEAD}:
        words = shape.config.get("vocab_size")
        if isinstance(words, int) and words > 0:
            return devices * words / (ceil(words / VOCABULARY_STEP) * VOCABULARY_STEP)
    if part.name.endswith(KEYS) and part.layer in heads:
        return min(devices, heads[part.layer])
    if part.role is Role.EXPERTS and "mxfp4" in quantisation.method_of(shape.quantisation):
        return devices / _padding(shape, devices)
    return devices


def _padding(shape: ModelShape, devices: int) -> float:
    """Return how much larger MXFP4's padded experts are than the checkpoint's."""
    hidden = shape.config.get("hidden_size")
    inner = shape.config.get("moe_intermediate_size") or shape.config.get("intermediate_size")
    if not isinstance(hidden, int) or not isinstance(inner, int):
        return 1
    padded_hidden = ceil(hidden / PADDED_HIDDEN) * PADDED_HIDDEN
    padded_inner = ceil(inner / devices / PADDED_INNER) * PADDED_INNER * devices
    return padded_hidden * padded_inner / (hidden * inner)
