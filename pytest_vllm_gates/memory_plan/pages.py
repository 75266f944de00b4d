"""The contents of a block for each layer, from the model's shape and the server's flags.

    attention, bytes a token   2 * max(1, heads // TP) * width * bytes of the cache's type
    latent attention           (latent + rotary width) * bytes, the same on every device of TP
    state, bytes a sequence    conv rows * channels / TP * bytes + heads / TP * elements * bytes

If a model has both kinds of layers, vLLM (`Platform._align_hybrid_block_size`) makes the
attention's block as long as a state needs, in the kernels' steps, and pads the state to that page:

    block = step * ceil(state / (step * attention bytes a token))
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import types as versions
from pytest_vllm_gates.memory_plan.config import BYTES, PACKED_LATENT, model_bytes
from pytest_vllm_gates.memory_plan.kv_cache import Page
from pytest_vllm_gates.memory_plan.types import CacheKind

if TYPE_CHECKING:
    from pytest_vllm_gates.memory_plan.types import Cache, ModelShape, RecurrentState, Serving

CUDA_BLOCK, CPU_BLOCK = 16, 128

LATENT_BLOCK, CPU_LATENT_BLOCK = 64, 16

LATENT_STEP = 128


def caches_of(shape: ModelShape, serving: Serving) -> list[Cache]:
    """Return the caches of the layers, and of the drafter's layers if it drafts."""
    caches = list(shape.caches)
    if serving.num_speculative_tokens:
        drafter = list(shape.drafter)
        if serving.drafter_layers is not None:
            full = [
                c
                for c in (*shape.drafter, *shape.caches)
                if c.kind in {CacheKind.FULL, CacheKind.LATENT}
            ]
            drafter = full[:1] * serving.drafter_layers
        caches += drafter
    return caches


def token_bytes(cache: Cache, shape: ModelShape, serving: Serving, cache_type: str) -> int:
    """Return the bytes of one token in one attention layer on one device."""
    if cache.kind is CacheKind.INDEXER:
        return cache.key
    element_bytes = (
        model_bytes(shape, serving) if cache_type == "auto" else BYTES.get(cache_type, 0)
    )
    if cache.kind is CacheKind.LATENT:
        return PACKED_LATENT.get(cache_type) or cache.key * element_bytes
    heads = max(1, cache.heads // serving.tensor_parallel_size)
    return heads * (cache.key + cache.value) * element_bytes


def state_bytes(state: RecurrentState, shape: ModelShape, serving: Serving) -> int:
    """Return the bytes of one sequence's state in one layer on one device."""
    parts = serving.tensor_parallel_size
    model_element_bytes = model_bytes(shape, serving)
    conv = (
        model_element_bytes
        if serving.mamba_cache_dtype == "auto"
        else BYTES[serving.mamba_cache_dtype]
    )
    memory_type = serving.mamba_ssm_cache_dtype
    if memory_type == "auto":
        accelerated = serving.device == "cpu" and serving.accelerated_state
        memory_type = "float32" if accelerated else state.precision
    memory = conv if memory_type == "auto" else BYTES[memory_type]
    groups = state.groups
    if groups % parts:
        # Each device needs the groups of its heads, so groups are repeated.
        groups += parts - groups
    channels = state.channels + groups * state.group_channels
    for name, count in (("channels", channels), ("heads", state.heads)):
        if count % parts:
            raise UserError(
                f"--tensor-parallel-size {parts} does not divide the recurrent layers' "
                f"{count} {name}"
            )
    rows = state.rows + (serving.num_speculative_tokens if state.rows_per_draft else 0)
    return channels // parts * rows * conv + state.heads // parts * state.head_elements * memory


def block_size_of(shape: ModelShape, serving: Serving) -> int:
    """Return the block size, before a state requires a longer one."""
    latent = any(cache.kind is CacheKind.LATENT for cache in shape.caches)
    if serving.device == "cpu":
        return CPU_LATENT_BLOCK if latent else serving.block_size or CPU_BLOCK
    if serving.block_size is not None:
        return serving.block_size
    return LATENT_BLOCK if latent else CUDA_BLOCK


def pages(
    shape: ModelShape, serving: Serving, cache_type: str, context: int, *, prefixes: bool
) -> list[tuple[int, Page]]:
    """Return each layer's page, in vLLM's order.

    If prefixes are not cached, a state has only one block, as long as the context.
    """
    caches = caches_of(shape, serving)
    block = block_size_of(shape, serving)
    states = {
        cache.state: state_bytes(cache.state, shape, serving) for cache in caches if cache.state
    }
    attention = [cache for cache in caches if cache.state is None]
    widest = max(states.values(), default=0)
    if widest and attention:
        first = next((c for c in attention if c.kind is not CacheKind.INDEXER), attention[0])
        bytes_per_token = token_bytes(first, shape, serving, cache_type)
        step = max(block, LATENT_STEP) if first.kind is CacheKind.LATENT else block
        block = max(block, step * ceil(widest / (step * bytes_per_token)))
        padded = block * bytes_per_token
    else:
        padded = widest
    full = any(cache.kind is CacheKind.FULL for cache in attention)
    older = versions.parsed(serving.vllm_version) < versions.HYBRID_MANAGER
    windows_are_full = full and (older or serving.disable_hybrid_kv_cache_manager)
    return [
        (
            cache.layer,
            Page(CacheKind.STATE, block if prefixes else context, padded)
            if cache.state
            else _page(
                cache, block, token_bytes(cache, shape, serving, cache_type), windows_are_full
            ),
        )
        for cache in caches
    ]


def _page(cache: Cache, block: int, bytes_per_token: int, windows_are_full: bool) -> Page:
    """Return an attention layer's page; `windows_are_full` treats windows like full attention."""
    # vLLM also caches chunked layers in full, unless an environment variable changes that.
    if (cache.kind is CacheKind.SLIDING and windows_are_full) or cache.kind is CacheKind.CHUNKED:
        return Page(CacheKind.FULL, block, block * bytes_per_token)
    return Page(
        cache.kind, block, block * bytes_per_token, cache.window, cache.kind is not CacheKind.LATENT
    )
