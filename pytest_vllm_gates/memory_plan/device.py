"""The memory that a device has left for the cache, and how it is computed.

    available = utilization * device memory - weights / devices - runtime

Weights are read from their files or counted. The runtime (activations of the largest batch, the
sampler, kernels, communication, graphs) is estimated: no file records it, vLLM measures it at
startup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import (
    runtime as runtimes,
    types as versions,
    weights as model_weights,
)
from pytest_vllm_gates.memory_plan.types import GIB

if TYPE_CHECKING:
    from pytest_vllm_gates.memory_plan.types import ModelShape, Room, Serving, Weights

MOST_BYTES = 2**50


@dataclass(frozen=True)
class DeviceShare:
    """How a device's memory is used."""

    kv_memory_bytes: int | None
    device_bytes: int | None
    overhead_bytes: int | None
    weights: Weights | None
    notes: tuple[str, ...] = ()
    overhead_low: int | None = None
    overhead_high: int | None = None
    """The interval of an estimated overhead; None if the overhead is given."""


def share(shape: ModelShape, serving: Serving, room: Room) -> DeviceShare:
    """Return the memory left for the cache; raises `UserError` for impossible values."""
    if room.kv_memory is not None and room.device_memory is not None:
        raise UserError(
            "--kv-memory and --gpu-memory exclude each other: pass the cache's memory or the "
            "whole device's"
        )
    if room.utilization is not None and not 0 < room.utilization <= 1:
        raise UserError(
            f"--gpu-memory-utilization {room.utilization:g} is not valid: expected a share above "
            "0, up to 1, for example 0.92"
        )
    for name, amount in (("kv-memory", room.kv_memory), ("gpu-memory", room.device_memory)):
        if amount is not None and not 0 < amount <= MOST_BYTES:
            raise UserError(f"--{name} of {amount} bytes is not valid; for example 80GiB")
    if room.overhead is not None and not 0 <= room.overhead <= MOST_BYTES:
        raise UserError(f"--overhead of {room.overhead} bytes is not valid; for example 2GiB")
    weights = model_weights.weights(shape, serving, room.weights)
    if room.kv_memory is not None or room.device_memory is None:
        return DeviceShare(room.kv_memory, None, None, weights)
    version = versions.parsed(serving.vllm_version)
    usual = usual_utilization(serving.vllm_version)
    utilization = usual if room.utilization is None else room.utilization
    estimate = runtimes.runtime(shape, serving) if room.overhead is None else None
    overhead = estimate.middle if estimate else room.overhead
    low, high = (estimate.low, estimate.high) if estimate else (None, None)
    notes = []
    if room.utilization is None:
        since = "from 0.19 on" if version >= versions.UTILIZATION_092 else "before 0.19"
        notes.append(f"vLLM uses {usual:g} of a device by default {since}")
    if estimate:
        notes.append(
            f"the runtime's memory is an estimate: {said_of(estimate)}. vLLM measures it at "
            "startup: pass the printed cache memory as --kv-memory, or the overhead as --overhead"
        )
    if weights is None:
        method = model_weights.unknown_method(shape)
        reason = f": the quantisation {method!r} is not known here" if method else ""
        notes.append(
            f"the weights' size is unknown{reason}, so the cache's memory is unknown; pass the "
            "folder of the checkpoint, with its safetensors files, as --config"
        )
        return DeviceShare(None, room.device_memory, overhead, None, tuple(notes), low, high)
    notes += weights.unsure
    left = int(utilization * room.device_memory) - weights.bytes_per_device
    return DeviceShare(
        left - (overhead or 0), room.device_memory, overhead, weights, tuple(notes), low, high
    )


def usual_utilization(version: str) -> float:
    """Return the default `gpu_memory_utilization` of a version of vLLM.

    Raises `UserError` for an invalid version.
    """
    return 0.92 if versions.parsed(version) >= versions.UTILIZATION_092 else 0.9


def said_of(estimate: runtimes.Runtime) -> str:
    """Return an estimate in words: its interval, and its parts."""
    parts = (
        ("activations and sampler", estimate.activations),
        ("communication", estimate.communication),
        ("kernels", estimate.kernels),
        ("CUDA graphs", estimate.graphs),
    )
    named = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts if size)
    return f"{estimate.low / GIB:.2f} to {estimate.high / GIB:.2f} GiB ({named})"
