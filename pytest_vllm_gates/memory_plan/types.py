"""The input and output of a memory plan, a model's shape, and the vLLM versions that matter.

The versions are read in the sources of 0.30 and 0.32 and in public logs of older versions. Where
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
    accelerated_state: bool = True
    """On a CPU: whether the processor has AVX-512 BF16, for which vLLM keeps a recurrent state in
    float32 (`CpuPlatform.check_and_update_config`); on others the state keeps the model's type."""
    device_memory: int | None = None
    """Bytes of one device, which decide vLLM's default for max_num_batched_tokens."""
    blackwell: bool = False
    a100: bool = False
    """An A100, for which vLLM keeps the small batches of smaller devices."""
    enforce_eager: bool = False


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
class CacheGroup:
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
    """What one request of the planned context needs of the cache."""
    largest_context: int | None = None
    largest_concurrency: int | None = None
    """Requests of the planned context at once, the head-room left free."""
    headroom: float = 0.0
    device_bytes: int | None = None
    overhead_bytes: int | None = None
    overhead_low: int | None = None
    """The least that the runtime takes by the estimate; None where it was given."""
    overhead_high: int | None = None
    """The most that it takes."""
    weights: Weights | None = None
    knobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def kv_memory_low(self) -> int | None:
        """The cache's memory where the runtime takes the most; None where nothing is estimated."""
        return self._cache_with(self.overhead_high)

    @property
    def kv_memory_high(self) -> int | None:
        """The cache's memory where the runtime takes the least."""
        return self._cache_with(self.overhead_low)

    def _cache_with(self, overhead: int | None) -> int | None:
        if self.kv_memory_bytes is None or self.overhead_bytes is None or overhead is None:
            return None
        return self.kv_memory_bytes + self.overhead_bytes - overhead


class CacheKind(StrEnum):
    """What a layer keeps: of every token, of the last ones, or of the sequence as a whole."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    LATENT = "latent attention"
    INDEXER = "sparse indexer"
    STATE = "recurrent state"


@dataclass(frozen=True)
class RecurrentState:
    """A recurrent layer's state of one sequence, before tensor parallelism divides it.

    It is a convolution's last inputs, `rows` of `channels` (and of `group_channels` for each of
    `groups`, which are repeated where there are fewer than devices), and the memory itself:
    `heads` of `head_elements` each.
    """

    channels: int
    rows: int
    heads: int
    head_elements: int
    groups: int = 0
    group_channels: int = 0
    precision: str = "auto"
    """The memory's own type where the model names one; "auto" is that of the convolution."""
    rows_per_draft: bool = True
    """Whether the convolution keeps one more row for each drafted token."""


@dataclass(frozen=True)
class Cache:
    """What one layer keeps. Widths are in elements; an indexer's `key` is in bytes."""

    layer: int
    kind: CacheKind
    heads: int = 1
    key: int = 0
    value: int = 0
    window: int | None = None
    """Tokens a sliding window sees, or tokens of a chunk."""
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
    """Tokens the model was made for."""
    drafter: tuple[Cache, ...] = ()
    """What the model's own prediction layers keep, when they are used to draft."""
    sparse: bool = False
    quantisation: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    """The text part of the config, defaults filled in."""
    raw_config: Mapping[str, Any] = field(default_factory=dict)
    """The config as given."""
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why this model's cache cannot be foretold; empty where it can."""


Version = tuple[int, int, int]
NEWEST = (0, 32)
"""The newest version whose sources were read."""
HYBRID_MANAGER: Version = (0, 9, 1)
"""From here on windows and full attention have groups of their own; before, all was kept whole."""
TOKENS_ARE_WHOLE_REQUESTS: Version = (0, 20, 2)
"""From here on the printed KV cache size is concurrency times context; before, one group's."""
BATCHES_IN_FLIGHT: Version = (0, 26, 0)
"""From here on a window makes room for every batch in flight, two with asynchronous scheduling."""
UNEVEN_GROUPS: Version = (0, 21, 0)
"""From here on kinds of layers may differ by half in number and still share a group size."""
HYBRID_PREFIX_CACHING: Version = (0, 29, 0)
"""From here on models with recurrent states cache prefixes unless told not to; 0.27 did not."""
NULL_BLOCK_RESERVED: Version = (0, 28, 0)
"""From here on the check at startup counts the block the pool keeps for itself; 0.26 did not."""
SPARSE_KEEPS_ITS_TYPE: Version = (0, 11, 1)
"""From here on sparse latent attention keeps 16 bits unless told otherwise; before, fp8_ds_mla."""
SPARSE_PLAIN_FP8: Version = (0, 26, 0)
"""From here on sparse latent attention knows plain fp8 beside fp8_ds_mla, by its full name."""
LEAN_SAMPLER: Version = (0, 17, 0)
"""From here on the sampler takes a third: 5.64 GiB, then 2.23 (llm-d-planner's report)."""
FUSED_ALL_REDUCE: Version = (0, 18, 0)
"""From here on all-reduce is fused with norms and has buffers of its own, and kernels take more."""
GRAPHS_COUNTED: Version = (0, 20, 0)
"""From here on an estimate of CUDA graphs is taken off. vLLM's message dates it to 0.21."""
LARGEST_BATCHES: Version = (0, 30, 0)
"""From here on, at the latest, devices of 160 GiB have batches of 16,384 tokens."""
UTILIZATION_092: Version = (0, 19, 0)
"""From here on vLLM takes 0.92 of a device unless told otherwise; before, 0.9."""


def parsed(text: str) -> Version:
    """Return a version as numbers; "0.20.2rc1.dev3+g12" is 0.20.2."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if not match:
        raise UserError(f"no version of vLLM: {text!r}; such as 0.32.0")
    return int(match[1]), int(match[2]), int(match[3] or 0)
