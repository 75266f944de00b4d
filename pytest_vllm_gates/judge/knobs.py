"""Which knob to turn, from what limits the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.model_shape import Kind
from pytest_vllm_gates.judge.fit import gibibytes

if TYPE_CHECKING:
    from pytest_vllm_gates.facts.model_shape import ModelShape
    from pytest_vllm_gates.memory_plan.types import MemoryPlan, Room, Serving, Weights


def turns(plan: MemoryPlan, shape: ModelShape, serving: Serving, room: Room) -> tuple[str, ...]:
    """Return what to change of a plan with its memory, the smallest sacrifice first.

    It is empty where there is room to spare.
    """
    if plan.weights and (plan.kv_memory_bytes or 0) <= 0:
        return _without_room(plan.weights, serving)
    if plan.fits and (plan.largest_concurrency or 0) > 1:
        return _wasteful(shape, serving)
    found = []
    if not plan.fits and plan.largest_context:
        found.append(
            f"--max-model-len {plan.largest_context}: the longest context that fits "
            f"(planned: {plan.context:,})"
        )
    if plan.kv_cache_dtype in {"auto", "bfloat16", "float16"}:
        found.append("--kv-cache-dtype fp8: half the bytes of a token; check the answers after it")
    if any(cache.kind is Kind.LATENT for cache in shape.caches):
        found.append(
            "--decode-context-parallel-size: latent attention is whole on every device, so that "
            "--tensor-parallel-size does not make it smaller"
        )
    elif _divides_further(shape, serving):
        found.append(
            f"--tensor-parallel-size {serving.tensor_parallel_size * 2}: half the heads, and half "
            "the weights, on each device"
        )
    if room.device_memory is not None:
        found.append("--gpu-memory-utilization: more of the device, if nothing else runs on it")
        found.append("--max-num-batched-tokens: a smaller batch takes less beside the cache")
    return (*found, *_wasteful(shape, serving))


def _without_room(weights: Weights, serving: Serving) -> tuple[str, ...]:
    size = gibibytes(weights.bytes_per_device)
    return (
        f"the weights take {size} of each device, and nothing is left for the cache",
        f"--tensor-parallel-size {serving.tensor_parallel_size * 2}: half of them on each device",
        "a quantised checkpoint: fp8 halves the weights, four bits quarter them",
    )


def _divides_further(shape: ModelShape, serving: Serving) -> bool:
    heads = [cache.heads for cache in shape.caches if cache.kind in {Kind.FULL, Kind.SLIDING}]
    return bool(heads) and min(heads) >= 2 * serving.tensor_parallel_size


def _wasteful(shape: ModelShape, serving: Serving) -> tuple[str, ...]:
    heads = [cache.heads for cache in shape.caches if cache.kind in {Kind.FULL, Kind.SLIDING}]
    if heads and serving.tensor_parallel_size > min(heads):
        return (
            f"--tensor-parallel-size {min(heads)}: there are {min(heads)} key-value heads, "
            f"and {serving.tensor_parallel_size} devices keep copies of them",
        )
    return ()
