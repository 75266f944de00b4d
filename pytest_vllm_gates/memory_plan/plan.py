"""The memory plan: whether a model fits, with how much context, and which flag to change.

The plan reads a shape and flags, never a machine, so it can be made for any machine. The figures
of the cache, given the memory that vLLM reports as available, follow vLLM's own arithmetic. The
figures of a whole device use an estimate of activations and kernels, and have a note on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import (
    config as defaults,
    device,
    fit,
    kv_cache,
    pages,
    types as versions,
)
from pytest_vllm_gates.memory_plan.fit import gibibytes
from pytest_vllm_gates.memory_plan.types import CacheKind, MemoryPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.memory_plan.kv_cache import Bucket
    from pytest_vllm_gates.memory_plan.types import ModelShape, Room, Serving, Weights


def suggestions_for(
    plan: MemoryPlan, shape: ModelShape, serving: Serving, room: Room
) -> tuple[str, ...]:
    """Return the flags to change in a plan that is short of memory, the smallest loss first.

    It is empty if there is memory to spare.
    """
    if plan.weights and (plan.kv_memory_bytes or 0) <= 0:
        return _without_room(plan.weights, serving)
    if plan.fits and (plan.largest_concurrency or 0) > 1:
        return _wasteful(shape, serving)
    suggestions = []
    if not plan.fits and plan.largest_context:
        suggestions.append(
            f"--max-model-len {plan.largest_context}: the longest context that fits "
            f"(planned: {plan.context:,})"
        )
    if plan.kv_cache_dtype in {"auto", "bfloat16", "float16"}:
        suggestions.append(
            "--kv-cache-dtype fp8: half the bytes of a token; check the answers after it"
        )
    if any(cache.kind is CacheKind.LATENT for cache in shape.caches):
        suggestions.append(
            "--decode-context-parallel-size: every device stores the whole latent attention, so "
            "--tensor-parallel-size does not make it smaller"
        )
    elif _divides_further(shape, serving):
        suggestions.append(
            f"--tensor-parallel-size {serving.tensor_parallel_size * 2}: half the heads, and half "
            "the weights, on each device"
        )
    if room.device_memory is not None:
        suggestions.append(
            "--gpu-memory-utilization: more of the device, if nothing else runs on it"
        )
        suggestions.append("--max-num-batched-tokens: a smaller batch leaves more for the cache")
    return (*suggestions, *_wasteful(shape, serving))


def _without_room(weights: Weights, serving: Serving) -> tuple[str, ...]:
    size = gibibytes(weights.bytes_per_device)
    return (
        f"the weights use {size} of each device, and nothing is left for the cache",
        f"--tensor-parallel-size {serving.tensor_parallel_size * 2}: half of them on each device",
        "a quantised checkpoint: fp8 halves the weights, four bits quarter them",
    )


def _divides_further(shape: ModelShape, serving: Serving) -> bool:
    heads = [
        cache.heads for cache in shape.caches if cache.kind in {CacheKind.FULL, CacheKind.SLIDING}
    ]
    return bool(heads) and min(heads) >= 2 * serving.tensor_parallel_size


def _wasteful(shape: ModelShape, serving: Serving) -> tuple[str, ...]:
    heads = [
        cache.heads for cache in shape.caches if cache.kind in {CacheKind.FULL, CacheKind.SLIDING}
    ]
    if heads and serving.tensor_parallel_size > min(heads):
        return (
            f"--tensor-parallel-size {min(heads)}: the model has {min(heads)} key-value heads, "
            f"and {serving.tensor_parallel_size} devices store copies of them",
        )
    return ()


HEADROOM = 0.1
LONGEST = 2**30
LEAST_BLOCK = 8
MOST_DRAFTED = 1000
HALF_OF_TWO_DIGITS = 0.005001
EVERY_BLOCK = ("bamba", "falcon_h1", "granitemoehybrid", "jamba", "nemotron_h")
STATE_TYPES = ("auto", "float16", "bfloat16", "float32")


def plan(shape: ModelShape, serving: Serving, room: Room, headroom: float = HEADROOM) -> MemoryPlan:
    """Return the plan; raises `UserError` for flags that do not work with this model.

    If the memory cannot be planned, the figures are empty and `refused` has the reason.
    """
    check(shape, serving, headroom)
    version = versions.parsed(serving.vllm_version)
    empty = MemoryPlan(
        architecture=shape.architecture,
        vllm_version=serving.vllm_version,
        context=serving.max_model_len or shape.context,
        layers=layer_counts(shape),
        headroom=headroom,
        notes=shape.notes,
        refused=shape.refused,
    )
    if shape.refused:
        return empty
    cache_type, refusal = defaults.kv_cache_dtype(shape, serving)
    if refusal:
        return replace(empty, kv_cache_dtype=cache_type, refused=(refusal,))
    context = empty.context
    if context is None:
        raise UserError(
            "config.json: 'max_position_embeddings' is missing, so the context is unknown; "
            "pass --max-model-len"
        )
    prefixes = defaults.caches_prefixes(shape, serving, version)
    if prefixes and shape.model_type in EVERY_BLOCK and version < versions.HYBRID_PREFIX_CACHING:
        reason = "with prefix caching, this version stores a state of a Mamba model for every block"
        return replace(empty, kv_cache_dtype=cache_type, refused=(reason,))
    layers = pages.pages(shape, serving, cache_type, context, prefixes=prefixes)
    try:
        buckets = kv_cache.grouped(layers, version)
    except kv_cache.CannotUnifyError as error:
        return replace(empty, kv_cache_dtype=cache_type, refused=(f"vLLM cannot lay out {error}",))
    return _planned(replace(empty, kv_cache_dtype=cache_type), shape, serving, room, buckets)


def allows(plan: MemoryPlan, tokens: int, concurrency: float | None = None) -> bool:
    """Return whether a server's printed figures are within the plan's interval.

    The plan must be made with the available KV cache memory from the same server's log. A refused
    plan has no figures and allows everything.
    """
    if plan.low is None or plan.high is None:
        return True
    if not plan.low.tokens <= tokens <= plan.high.tokens:
        return False
    if concurrency is None:
        return True
    lowest, highest = plan.low.concurrency - HALF_OF_TWO_DIGITS, plan.high.concurrency
    return lowest <= concurrency <= highest + HALF_OF_TWO_DIGITS


def check(shape: ModelShape, serving: Serving, headroom: float) -> None:
    """Raise `UserError` for flags that no server could run with."""
    counts = {
        "tensor-parallel-size": serving.tensor_parallel_size,
        "pipeline-parallel-size": serving.pipeline_parallel_size,
        "decode-context-parallel-size": serving.decode_context_parallel_size,
        "max-model-len": serving.max_model_len,
        "max-num-batched-tokens": serving.max_num_batched_tokens,
        "max-num-seqs": serving.max_num_seqs,
        "block-size": serving.block_size,
    }
    for name, count in counts.items():
        if count is not None and not 1 <= count <= LONGEST:
            raise UserError(f"--{name} {count} is not valid; from 1 to {LONGEST:,}")
    if not 0 <= serving.num_speculative_tokens <= MOST_DRAFTED:
        raise UserError(
            f"--num-speculative-tokens {serving.num_speculative_tokens} is not valid; "
            f"from 0 to {MOST_DRAFTED}"
        )
    if not 0 <= (serving.drafter_layers or 0) <= MOST_DRAFTED:
        raise UserError(f"--drafter-layers {serving.drafter_layers} is not valid")
    if not 0 <= headroom < 1:
        raise UserError(
            f"--headroom {headroom:g} is not valid; a share from 0 to below 1, for example 0.1"
        )
    if shape.layers and serving.pipeline_parallel_size > shape.layers:
        raise UserError(
            f"--pipeline-parallel-size {serving.pipeline_parallel_size} is more than the model's "
            f"{shape.layers} layers"
        )
    heads, parts = shape.config.get("num_attention_heads"), serving.tensor_parallel_size
    if isinstance(heads, int) and heads % parts:
        raise UserError(
            f"--tensor-parallel-size {parts} does not divide the model's {heads} attention heads"
        )
    _check_sharing(shape, serving)
    for cache in shape.caches:
        remainder = max(cache.heads, parts) % min(cache.heads, parts)
        if cache.kind in {CacheKind.FULL, CacheKind.SLIDING, CacheKind.CHUNKED} and remainder:
            raise UserError(
                f"--tensor-parallel-size {parts} neither divides nor repeats the model's "
                f"{cache.heads} key-value heads"
            )


def _check_sharing(shape: ModelShape, serving: Serving) -> None:
    ranks, parts = serving.decode_context_parallel_size, serving.tensor_parallel_size
    if ranks > 1 and parts % ranks:
        raise UserError(
            f"--decode-context-parallel-size {ranks} does not divide --tensor-parallel-size "
            f"{parts}, but it uses the same devices"
        )
    if ranks > 1 and any(cache.kind is CacheKind.SLIDING for cache in shape.caches):
        raise UserError(
            "--decode-context-parallel-size: vLLM does not support it for sliding windows"
        )
    if serving.block_size is not None and serving.block_size % LEAST_BLOCK:
        raise UserError(f"--block-size {serving.block_size} is not a multiple of {LEAST_BLOCK}")
    for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"):
        value = getattr(serving, name)
        if value not in STATE_TYPES:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {value!r} is not known\nknown: {', '.join(STATE_TYPES)}")


def sparse_fp8(shape: ModelShape, cache_type: str) -> tuple[str, ...]:
    """Return a note on an fp8 cache whose size depends on the kernels."""
    if not shape.sparse or not cache_type.startswith("fp8"):
        return ()
    return (
        "fp8 in sparse latent attention: 656 bytes a token with FlashMLA's kernels "
        f"(fp8_ds_mla), 576 with FlashInfer's on Blackwell (--blackwell); planned: {cache_type}",
    )


def drafter_of(shape: ModelShape, serving: Serving) -> tuple[str, ...]:
    """Return a note on a drafter that the config does not describe."""
    if not serving.num_speculative_tokens or shape.drafter or serving.drafter_layers is not None:
        return ()
    return (
        "the config describes no drafter, so none is planned: pass --drafter-layers if the drafter "
        "has its own cache",
    )


def layer_counts(shape: ModelShape) -> dict[str, int]:
    """Return the number of layers of each kind of cache."""
    layers: dict[str, int] = {}
    for cache in shape.caches:
        layers[cache.kind.value] = layers.get(cache.kind.value, 0) + 1
    return layers


def _planned(
    empty: MemoryPlan, shape: ModelShape, serving: Serving, room: Room, buckets: Sequence[Bucket]
) -> MemoryPlan:
    version = versions.parsed(serving.vllm_version)
    plan_notes = (*sparse_fp8(shape, empty.kv_cache_dtype), *drafter_of(shape, serving))
    recycled = any(bucket.page.kind is CacheKind.SLIDING for bucket in buckets)
    batched, guess = defaults.max_num_batched_tokens(serving, certain=not recycled)
    demand = kv_cache.Demand(
        context=empty.context or 1,
        in_flight=batched * defaults.batches_in_flight(serving, version),
        states=1
        + serving.num_speculative_tokens
        + defaults.caches_prefixes(shape, serving, version),
        ranks=serving.decode_context_parallel_size,
    )
    stages = serving.pipeline_parallel_size
    parts = kv_cache.stages(shape.layers, stages) if stages > 1 else None
    share = device.share(shape, serving, room)
    available = share.kv_memory_bytes
    described = replace(
        empty,
        block_size=min(bucket.page.block_size for bucket in buckets),
        page_bytes=max(page.size for bucket in buckets for page in bucket.pages),
        group_size=max(len(bucket.layers) for bucket in buckets),
        groups=kv_cache.described(buckets, demand),
        bytes_per_block=kv_cache.bytes_per_block(buckets),
        kv_bytes_per_token=fit.token_cost(buckets, demand, parts),
        state_bytes_per_sequence=fit.state_cost(buckets, demand, parts),
        max_num_batched_tokens=batched,
        kv_memory_bytes=available,
        device_bytes=share.device_bytes,
        overhead_bytes=share.overhead_bytes,
        overhead_low=share.overhead_low,
        overhead_high=share.overhead_high,
        weights=share.weights,
        needed_bytes=kv_cache.needed_bytes(buckets, demand, version, parts),
        notes=(*empty.notes, *plan_notes, *((guess,) if guess else ()), *share.notes),
    )
    if available is None:
        return described
    outcome = fit.fitted(described, available, fit.Layout(tuple(buckets), demand, version, parts))
    return replace(outcome, knobs=suggestions_for(outcome, shape, serving, room))
