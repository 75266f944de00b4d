"""The memory that a device has left for the cache, and where that figure comes from.

    available = utilization * device memory - weights / devices - runtime

Weights are read from their files or counted. The runtime (activations of the largest batch, the
sampler, kernels, communication, graphs) is in no file: vLLM measures it at startup, and it is
estimated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import (
    config as defaults,
    types as versions,
    weights as model_weights,
)
from pytest_vllm_gates.memory_plan.types import GIB

if TYPE_CHECKING:
    from pytest_vllm_gates.memory_plan.types import ModelShape, Room, Serving, Weights

KERNELS = GIB // 2
"""A CUDA context, loaded kernels and workspaces, as logs show them on one device."""
COMMUNICATION = 3 * GIB // 2
"""NCCL's buffers, custom all-reduce and larger graphs of several devices. With 0.5 GiB every public
boot of two and more devices was planned too well, by 1 GiB in the median."""
GRAPHS = GIB // 2
LIVE_TENSORS = 4
"""Hidden states alive at once in a layer's forward pass."""
SAMPLER_BYTES = 8
"""A logit in float32, and its copy, for each word of the vocabulary and each sequence."""
DEFAULT_SEQUENCES, SEQUENCES_ON_SMALL = 1024, 256
SMALL_DEVICE = 70 * GIB
MOST_BYTES = 2**50


@dataclass(frozen=True)
class DeviceShare:
    """Where a device's memory goes."""

    kv_memory_bytes: int | None
    device_bytes: int | None
    overhead_bytes: int | None
    weights: Weights | None
    notes: tuple[str, ...] = ()


def share(shape: ModelShape, serving: Serving, room: Room) -> DeviceShare:
    """Return what is left for the cache; raises `UserError` for a room that makes no sense."""
    if room.kv_memory is not None and room.device_memory is not None:
        raise UserError("--kv-memory and --gpu-memory: give one, what is left or the whole")
    if room.utilization is not None and not 0 < room.utilization <= 1:
        raise UserError(
            f"--gpu-memory-utilization {room.utilization:g} makes no sense; a share such as 0.92"
        )
    for name, amount in (("kv-memory", room.kv_memory), ("gpu-memory", room.device_memory)):
        if amount is not None and not 0 < amount <= MOST_BYTES:
            raise UserError(f"--{name} of {amount} bytes makes no sense; such as 80GiB")
    if room.overhead is not None and not 0 <= room.overhead <= MOST_BYTES:
        raise UserError(f"--overhead of {room.overhead} bytes makes no sense; such as 2GiB")
    weights = model_weights.weights(shape, serving, room.weights)
    if room.kv_memory is not None or room.device_memory is None:
        return DeviceShare(room.kv_memory, None, None, weights)
    version = versions.parsed(serving.vllm_version)
    usual = 0.92 if version >= versions.UTILIZATION_092 else 0.9
    utilization = usual if room.utilization is None else room.utilization
    overhead = estimated(shape, serving) if room.overhead is None else room.overhead
    notes = []
    if room.utilization is None:
        since = "from 0.19 on" if version >= versions.UTILIZATION_092 else "before 0.19"
        notes.append(f"{usual:g} of a device is what vLLM takes by default {since}")
    if room.overhead is None:
        notes.append(
            "what the runtime takes (activations, kernels, graphs) is an estimate; vLLM measures "
            "it at startup: give what it prints as --kv-memory, or what it takes as --overhead"
        )
    if weights is None:
        method = model_weights.unknown_method(shape)
        reason = f": the quantisation {method!r} is not known here" if method else ""
        notes.append(
            f"the weights' size is unknown{reason}, so what is left for the cache is unknown; give "
            "the folder of the checkpoint, with its safetensors files, as --config"
        )
        return DeviceShare(None, room.device_memory, overhead, None, tuple(notes))
    notes += weights.unsure
    available = int(utilization * room.device_memory) - weights.bytes_per_device - overhead
    return DeviceShare(available, room.device_memory, overhead, weights, tuple(notes))


def estimated(shape: ModelShape, serving: Serving) -> int:
    """Return an estimate of what the runtime takes on one device, in bytes."""
    batched, _ = defaults.max_num_batched_tokens(serving, certain=True)
    small = serving.device_memory is not None and serving.device_memory < SMALL_DEVICE
    sequences = serving.max_num_seqs or (SEQUENCES_ON_SMALL if small else DEFAULT_SEQUENCES)
    parts = serving.tensor_parallel_size
    hidden = _integer(shape.config.get("hidden_size"))
    inner = max(
        _integer(shape.config.get("intermediate_size")),
        _integer(shape.config.get("moe_intermediate_size")) * _active_experts(shape),
    )
    words = _integer(shape.config.get("vocab_size"))
    activations = batched * 2 * (LIVE_TENSORS * hidden + 3 * inner // parts)
    sampler = sequences * words * SAMPLER_BYTES
    several = parts * serving.pipeline_parallel_size > 1
    return activations + sampler + KERNELS + GRAPHS + (COMMUNICATION if several else 0)


def _active_experts(shape: ModelShape) -> int:
    return _integer(shape.config.get("num_experts_per_tok")) or 1


def _integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
