"""Estimates the memory that vLLM uses besides weights and cache, with an interval.

    runtime = activations + communication + kernels + graphs

vLLM measures it at startup: a forward pass of the largest batch, then the sampler for the largest
number of sequences. The constants are fitted to the calibrating boots of
`benchmarks/recorded/public_boots.toml`; `benchmarks/public_boots.py` prints how many of all boots
are within the interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import config as defaults, types as versions
from pytest_vllm_gates.memory_plan.types import GIB

if TYPE_CHECKING:
    from pytest_vllm_gates.memory_plan.types import ModelShape, Serving, Version

MIB = 2**20
HIDDEN_ALIVE = 4.25
"""Hidden states alive at once in a layer's forward pass, without its feed-forward part."""
INNER_ALIVE = 3
"""Tensors alive at once in the feed-forward part: gate, up, and their product."""
PIPELINE_HIDDEN = 2
"""Hidden states that a stage sends and receives."""
LOGIT_BYTES, LOGIT_BYTES_ONCE = 12.7, 36.0
"""Bytes of the sampler for each logit, besides the logit in the model's type: sorted values, their
indices, probabilities. Before 0.17 it was three times as much."""
SAMPLER_REST = 40 * MIB
TOWER_HIDDEN = 2.5
"""Hidden states of a full batch that a vision or audio tower adds: its outputs stay in memory."""
TOWERS = ("vision_config", "audio_config")
KERNELS, KERNELS_ONCE, KERNELS_IN_PIPELINE = GIB // 4, GIB // 8, 70 * MIB
"""Loaded kernels and workspaces outside torch's memory; a pipeline loads them earlier."""
FUSED_COMMUNICATION = 1820 * MIB
"""Buffers of NCCL and of all-reduce fused with norms, on devices with NVLink from 0.18 on."""
COMMUNICATION = 430 * MIB
EACH_DOUBLING = 70 * MIB
"""The increase of communication with twice as many devices."""
GRAPH_BASE, GRAPH_LAYER, GRAPH_EXPERTS = 360 * MIB, 18 * MIB, 410 * MIB
"""CUDA graphs of all sizes up to 512: without layers, for each of them, and with experts."""
LARGEST_CAPTURED = 512
LARGE_DEVICE = 70 * GIB
"""Devices with this much memory are assumed to have NVLink."""
# The interval: shares and sizes by which the public boots differ from the middle.
ACTIVATIONS_LOW, ACTIVATIONS_HIGH = 0.9, 1.1
TOWER_HIGH = 7 * GIB // 2
"""Towers are profiled with their largest images or videos; configs do not have their number."""
ONE_DEVICE_LOW, ONE_DEVICE_HIGH = 100 * MIB, 300 * MIB
SEVERAL_LOW, SEVERAL_HIGH = 400 * MIB, 700 * MIB
GRAPHS_LOW, GRAPHS_HIGH = 0.3, 2.2


@dataclass(frozen=True)
class Runtime:
    """Bytes of a device, by their use, and the interval of their sum."""

    activations: int
    communication: int
    kernels: int
    graphs: int
    low: int
    high: int

    @property
    def middle(self) -> int:
        """The sum of the parts."""
        return self.activations + self.communication + self.kernels + self.graphs


def runtime(shape: ModelShape, serving: Serving) -> Runtime:
    """Return the runtime's memory on one device; in a pipeline, on its last stage."""
    version = versions.parsed(serving.vllm_version)
    activations = _activations(shape, serving, version)
    communication, kernels = _outside_torch(serving, version)
    graphs = _graphs(shape, serving, version)
    several = serving.tensor_parallel_size * serving.pipeline_parallel_size > 1
    outside = communication + kernels
    low = max(0, outside - (SEVERAL_LOW if several else ONE_DEVICE_LOW))
    high = outside + (SEVERAL_HIGH if several else ONE_DEVICE_HIGH)
    tower = TOWER_HIGH if _has_tower(shape) else 0
    return Runtime(
        activations, communication, kernels, graphs,
        low=low + int(ACTIVATIONS_LOW * activations + GRAPHS_LOW * graphs),
        high=high + int(ACTIVATIONS_HIGH * activations + GRAPHS_HIGH * graphs) + tower,
    )  # fmt: skip


def _activations(shape: ModelShape, serving: Serving, version: Version) -> int:
    """Return the peak of a profiling run: in the layers, or in the sampler with what remains."""
    batched, _ = defaults.max_num_batched_tokens(serving, certain=True)
    sequences = min(defaults.max_num_seqs(serving), batched)
    parts, hidden = serving.tensor_parallel_size, _integer(shape, "hidden_size")
    width = _element_bytes(shape, serving)
    lean = version >= versions.LEAN_SAMPLER
    logits = sequences * _integer(shape, "vocab_size")
    sampler = logits * (width + (LOGIT_BYTES if lean else LOGIT_BYTES_ONCE))
    sampler += batched * hidden * width + SAMPLER_REST
    passed_on = PIPELINE_HIDDEN if serving.pipeline_parallel_size > 1 else 0
    experts = _expert_workspace(shape, parts) * batched * width
    inner = INNER_ALIVE * _integer(shape, "intermediate_size") / parts
    layer = batched * width * ((HIDDEN_ALIVE + passed_on) * hidden + inner)
    tower = TOWER_HIDDEN * batched * hidden * width if _has_tower(shape) else 0
    kept = experts if lean else 0
    return int(
        max(sampler + kept, layer, batched * width * HIDDEN_ALIVE * hidden + experts) + tower
    )


def _expert_workspace(shape: ModelShape, parts: int) -> float:
    """Return the elements per token that the fused experts' kernels keep between layers.

    gpt-oss's MXFP4 kernels have no such workspace.
    """
    inner, chosen = _integer(shape, "moe_intermediate_size"), _integer(shape, "num_experts_per_tok")
    if not chosen or shape.model_type == "gpt_oss":
        return 0
    inner = (inner or _integer(shape, "intermediate_size")) / parts  # type: ignore[assignment]
    return chosen * (max(2 * inner, _integer(shape, "hidden_size")) + inner)


def _outside_torch(serving: Serving, version: Version) -> tuple[int, int]:
    """Return the bytes of communication and of kernels."""
    parts = serving.tensor_parallel_size
    recent = version >= versions.FUSED_ALL_REDUCE
    if parts == 1 and serving.pipeline_parallel_size > 1:
        return 0, KERNELS_IN_PIPELINE
    kernels = KERNELS if recent else KERNELS_ONCE
    if parts == 1:
        return 0, kernels
    large = (serving.device_memory or LARGE_DEVICE) >= LARGE_DEVICE
    base = FUSED_COMMUNICATION if recent and large else COMMUNICATION
    return base + int(EACH_DOUBLING * (log2(parts) - 1)), kernels


def _graphs(shape: ModelShape, serving: Serving, version: Version) -> int:
    """Return vLLM's estimate for CUDA graphs; before 0.20 it did not subtract one."""
    if version < versions.GRAPHS_COUNTED or serving.enforce_eager:
        return 0
    captured = min(LARGEST_CAPTURED, 2 * defaults.max_num_seqs(serving)) / LARGEST_CAPTURED
    layers = shape.layers / serving.pipeline_parallel_size
    experts = GRAPH_EXPERTS if _integer(shape, "num_experts_per_tok") else 0
    return int(GRAPH_BASE + (GRAPH_LAYER * layers + experts) * captured)


def _has_tower(shape: ModelShape) -> bool:
    return any(isinstance(shape.raw_config.get(name), dict) for name in TOWERS)


def _element_bytes(shape: ModelShape, serving: Serving) -> int:
    try:
        return defaults.model_bytes(shape, serving)
    except UserError:
        return 2


def _integer(shape: ModelShape, key: str) -> int:
    value = shape.config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
