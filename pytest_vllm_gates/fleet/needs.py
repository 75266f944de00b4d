"""The devices that a server needs on a lane: their number, kind and memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog import flags
from pytest_vllm_gates.checkpoints import fingerprint, prompt_files
from pytest_vllm_gates.checkpoints.safetensors import weights_bytes
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.fleet.shards import Needs
from pytest_vllm_gates.memory_plan.device import usual_utilization
from pytest_vllm_gates.memory_plan.plan import plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import GIB, Room, Serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane

CPU = "cpu"
LARGE_BYTES = 2**42
"""A device so large that every model fits, so that the plan returns the needed bytes."""


def of(checkpoint: Checkpoint, lane: Lane, serve: Mapping[str, Any]) -> Needs:
    """Return the needs of a checkpoint, served with these flags. No network is used."""
    if lane.device == CPU:
        return Needs()
    return Needs(flags.devices(serve), lane.expects.gpu or "", memory_gib(checkpoint, serve))


def memory_gib(checkpoint: Checkpoint, serve: Mapping[str, Any]) -> int:
    """Return each device's memory for the weights, one longest request and the runtime, in GiB.

    0 for a checkpoint without files on this machine, and for one without a memory plan.
    """
    folder, _ = fingerprint.place(checkpoint.source, checkpoint.revision)
    if folder is None:
        return 0
    known = {field.name for field in dataclasses.fields(Serving)}
    given = {name: value for name, value in serve.items() if name in known}
    try:
        shape = shape_of(prompt_files.config(str(folder)))
        room = Room(device_memory=LARGE_BYTES, weights=weights_bytes(folder, shape.layers))
        made = plan(shape, Serving(**given), room)
    except (UserError, TypeError, ValueError):
        return 0
    if made.weights is None or made.needed_bytes is None:
        return 0
    needed = made.weights.bytes_per_device + made.needed_bytes + (made.overhead_bytes or 0)
    share = float(serve.get("gpu_memory_utilization") or usual_utilization(Serving.vllm_version))
    return -(-int(needed / share) // GIB)
