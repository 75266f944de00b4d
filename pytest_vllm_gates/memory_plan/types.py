"""What a memory plan is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1024**3
HALF_A_DIGIT = GIB // 200
"""vLLM prints gibibytes to two digits: what it has is up to 0.005 GiB off."""


@dataclass(frozen=True)
class Serving:
    """The flags of a server that decide its memory, under vLLM's names. None is vLLM's default."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    block_size: int | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_speculative_tokens: int = 0
    drafter_layers: int | None = None
    """Layers the model's own drafter adds; None is what its config says, one as a rule."""
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    quantization: str | None = None
    vllm_version: str = "0.32.0"
    device: str = "cuda"
    device_memory: int | None = None
    """Bytes of one device, which decide vLLM's default for max_num_batched_tokens."""
    blackwell: bool = False


@dataclass(frozen=True)
class Room:
    """Where the cache's memory comes from; exactly one of the two is given, in bytes a device.

    `kv_memory` is what vLLM prints as the available KV cache memory; `device_memory` is the whole
    of a device, of which weights and the runtime take their part first.
    """

    kv_memory: int | None = None
    device_memory: int | None = None
    utilization: float | None = None
    overhead: int | None = None
    """Bytes of activations, kernels and graphs; None is an estimate."""
    weights: int | None = None
    """Bytes of weights of the whole model, read from its files; None counts parameters."""


@dataclass(frozen=True)
class Pool:
    """A device's block pool: what vLLM makes of the memory it has left for the cache."""

    num_blocks: int
    tokens: int
    """The figure vLLM prints as its KV cache size, with the meaning it has in that version."""
    concurrency: float
    """Whole requests of the planned context at once, as vLLM prints it."""


@dataclass(frozen=True)
class Group:
    """Layers that share a block table: one block of `block_size` tokens holds all of them."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    """Bytes of one layer's part of a block; where they differ, of all layers together."""
    blocks_per_request: int


@dataclass(frozen=True)
class Weights:
    """What the weights take. `parameters` is None where only files were read."""

    bytes_total: int
    bytes_per_device: int
    source: str
    parameters: int | None = None
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """The answer. Figures are None where they cannot be said; `refused` and `notes` say why."""

    architecture: str
    vllm_version: str
    context: int | None
    layers: dict[str, int] = field(default_factory=dict)
    kv_cache_dtype: str = ""
    kv_bytes_per_token: int | None = None
    """Bytes that one more token of a long context costs on one device."""
    state_bytes_per_sequence: int | None = None
    """Bytes a sequence holds however long it is: recurrent states."""
    block_size: int | None = None
    page_bytes: int | None = None
    group_size: int | None = None
    groups: tuple[Group, ...] = ()
    bytes_per_block: int | None = None
    max_num_batched_tokens: int | None = None
    kv_memory_bytes: int | None = None
    pool: Pool | None = None
    low: Pool | None = None
    """The pool with 0.005 GiB less: the least that a printed figure allows."""
    high: Pool | None = None
    fits: bool | None = None
    needed_bytes: int | None = None
    """What one request of the planned context needs of the cache."""
    largest_context: int | None = None
    largest_concurrency: int | None = None
    """Requests of the planned context at once, the head-room left free."""
    headroom: float = 0.0
    device_bytes: int | None = None
    overhead_bytes: int | None = None
    weights: Weights | None = None
    knobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
