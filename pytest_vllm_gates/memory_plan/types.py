"""The input and output of a memory plan, a model's shape, and the vLLM versions that matter.

The versions are read in the sources of 0.30 and 0.32 and in public logs of older versions. If
there are only logs, the version is the first one whose log shows the new behaviour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1024**3
HALF_A_DIGIT = GIB // 200
"""vLLM prints gibibytes with two digits: the exact value differs by up to 0.005 GiB."""


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
    """Layers of the model's own drafter; None takes them from its config, usually one."""
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    quantization: str | None = None
    vllm_version: str = "0.32.0"
    device: str = "cuda"
    accelerated_state: bool = True
    """On a CPU: whether the processor has AVX-512 BF16. vLLM then stores a recurrent state in
    float32 (`CpuPlatform.check_and_update_config`); otherwise the state has the model's type."""
    device_memory: int | None = None
    """Bytes of one device, which decide vLLM's default for max_num_batched_tokens."""
    blackwell: bool = False
    a100: bool = False
    """An A100, for which vLLM uses the small batches of smaller devices."""
    enforce_eager: bool = False


@dataclass(frozen=True)
class Room:
    """The source of the cache's memory; exactly one of the first two is given, in bytes a device.

    `kv_memory` is the available KV cache memory that vLLM prints; `device_memory` is the memory of
    a whole device, from which weights and the runtime are subtracted.
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
    """A device's block pool, which vLLM makes from the memory left for the cache."""

    num_blocks: int
    tokens: int
    """The figure that vLLM prints as KV cache size, with its meaning in that version."""
    concurrency: float
    """Whole requests of the planned context at once, as vLLM prints it."""


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share a block table: one block of `block_size` tokens serves all of them."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    """Bytes of one layer's part of a block; if the parts differ, of all layers together."""
    blocks_per_request: int


@dataclass(frozen=True)
class Weights:
    """The size of the weights. `parameters` is None if only files were read."""

    bytes_total: int
    bytes_per_device: int
    source: str
    parameters: int | None = None
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """The plan. Unknown figures are None; `refused` and `notes` have the reasons."""

    architecture: str
    vllm_version: str
    context: int | None
    layers: dict[str, int] = field(default_factory=dict)
    kv_cache_dtype: str = ""
    kv_bytes_per_token: int | None = None
    """Bytes that one more token of a long context costs on one device."""
    state_bytes_per_sequence: int | None = None
    """Bytes of a sequence that do not depend on its length: recurrent states."""
    block_size: int | None = None
    page_bytes: int | None = None
    group_size: int | None = None
    groups: tuple[CacheGroup, ...] = ()
    bytes_per_block: int | None = None
    max_num_batched_tokens: int | None = None
    kv_memory_bytes: int | None = None
    pool: Pool | None = None
    low: Pool | None = None
    """The pool with 0.005 GiB less: the least that a printed figure allows."""
    high: Pool | None = None
    fits: bool | None = None
    needed_bytes: int | None = None
    """Bytes that one request of the planned context needs in the cache."""
    largest_context: int | None = None
    largest_concurrency: int | None = None
    """Concurrent requests of the planned context, with the headroom left free."""
    headroom: float = 0.0
    device_bytes: int | None = None
    overhead_bytes: int | None = None
    overhead_low: int | None = None
    """The lower end of the runtime's estimate; None if the overhead was given."""
    overhead_high: int | None = None
    """The upper end of the estimate."""
    weights: Weights | None = None
    knobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def kv_memory_low(self) -> int | None:
        """The cache's memory at the upper end of the estimate; None without an estimate."""
        return self._cache_with(self.overhead_high)

    @property
    def kv_memory_high(self) -> int | None:
        """The cache's memory at the lower end of the estimate."""
        return self._cache_with(self.overhead_low)

    def _cache_with(self, overhead: int | None) -> int | None:
        if self.kv_memory_bytes is None or self.overhead_bytes is None or overhead is None:
            return None
        return self.kv_memory_bytes + self.overhead_bytes - overhead


class CacheKind(StrEnum):
    """The contents of a layer's cache: all tokens, the last ones, or a state of the sequence."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    LATENT = "latent attention"
    INDEXER = "sparse indexer"
    STATE = "recurrent state"


@dataclass(frozen=True)
class RecurrentState:
    """A recurrent layer's state of one sequence, before tensor parallelism divides it.

    It consists of a convolution's last inputs, `rows` of `channels` (and of `group_channels` for
    each of `groups`, which are repeated if there are fewer than devices), and the memory itself:
    `heads` of `head_elements` each.
    """

    channels: int
    rows: int
    heads: int
    head_elements: int
    groups: int = 0
    group_channels: int = 0
    precision: str = "auto"
    """The memory's type if the model sets one; "auto" is the convolution's type."""
    rows_per_draft: bool = True
    """Whether the convolution keeps one more row for each drafted token."""


@dataclass(frozen=True)
class Cache:
    """The cache of one layer. Widths are in elements; an indexer's `key` is in bytes."""

    layer: int
    kind: CacheKind
    heads: int = 1
    key: int = 0
    value: int = 0
    window: int | None = None
    """Tokens of a sliding window or of a chunk."""
    state: RecurrentState | None = None


@dataclass(frozen=True)
class ModelShape:
    """A model as its config.json describes it, with the defaults its class fills in."""

    architecture: str
    model_type: str
    layers: int
    caches: tuple[Cache, ...]
    dtype: str
    context: int | None = None
    """The context that the model was made for, in tokens."""
    drafter: tuple[Cache, ...] = ()
    """The caches of the model's own prediction layers, if they are used to draft."""
    sparse: bool = False
    quantisation: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The text part of the config, defaults filled in."""
    raw_config: Mapping[str, Any] = field(default_factory=dict)
    """The config as given."""
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why this model's cache cannot be planned; empty if it can."""


Version = tuple[int, int, int]
NEWEST = (0, 32)
"""The newest version whose sources were read."""
HYBRID_MANAGER: Version = (0, 9, 1)
"""From here on windows and full attention have separate groups; before, all was cached in full."""
TOKENS_ARE_WHOLE_REQUESTS: Version = (0, 20, 2)
"""From here on the printed KV cache size is concurrency times context; before, one group's size."""
BATCHES_IN_FLIGHT: Version = (0, 26, 0)
"""From here on a window has room for every batch in flight, two with asynchronous scheduling."""
UNEVEN_GROUPS: Version = (0, 21, 0)
"""From here on kinds of layers share a group size if their numbers differ by up to half."""
HYBRID_PREFIX_CACHING: Version = (0, 29, 0)
"""From here on models with recurrent states cache prefixes by default; 0.27 did not."""
NULL_BLOCK_RESERVED: Version = (0, 28, 0)
"""From here on the check at startup counts the pool's reserved block; 0.26 did not."""
SPARSE_KEEPS_ITS_TYPE: Version = (0, 11, 1)
"""From here on sparse latent attention uses 16 bits by default; before, fp8_ds_mla."""
SPARSE_PLAIN_FP8: Version = (0, 26, 0)
"""From here on sparse latent attention supports plain fp8, by its full name, and fp8_ds_mla."""
LEAN_SAMPLER: Version = (0, 17, 0)
"""From here on the sampler needs a third: 2.23 GiB instead of 5.64 (llm-d-planner's report)."""
FUSED_ALL_REDUCE: Version = (0, 18, 0)
"""From here on all-reduce is fused with norms and has its own buffers, and kernels need more."""
GRAPHS_COUNTED: Version = (0, 20, 0)
"""From here on an estimate of CUDA graphs is subtracted. vLLM's message dates it to 0.21."""
LARGEST_BATCHES: Version = (0, 30, 0)
"""From here on, or earlier, devices of 160 GiB have batches of 16,384 tokens."""
UTILIZATION_092: Version = (0, 19, 0)
"""From here on vLLM uses 0.92 of a device by default; before, 0.9."""


def parsed(text: str) -> Version:
    """Return a version as numbers; "0.20.2rc1.dev3+g12" is 0.20.2."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if not match:
        raise UserError(f"not a version of vLLM: {text!r}; for example 0.32.0")
    return int(match[1]), int(match[2]), int(match[3] or 0)
