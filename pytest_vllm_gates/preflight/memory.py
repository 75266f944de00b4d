"""Checks memory: enough is free for vLLM, and one request of full length fits in the KV cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.memory_plan import fit, plan as memory_plan
from pytest_vllm_gates.memory_plan.shape import shape_of
from pytest_vllm_gates.memory_plan.types import Room
from pytest_vllm_gates.preflight import flags
from pytest_vllm_gates.preflight.gpu import ELSEWHERE, visible
from pytest_vllm_gates.preflight.types import (
    GIB,
    CheckResult,
    fails,
    gib,
    not_applicable,
    ok,
    unknown,
)

if TYPE_CHECKING:
    from pytest_vllm_gates.machine.types import Machine
    from pytest_vllm_gates.preflight.types import Situation

SPACE = "VLLM_CPU_KVCACHE_SPACE"
EXPLICIT = "kv_cache_memory_bytes"


def free_memory(situation: Situation) -> CheckResult:
    """The share of memory in `gpu_memory_utilization` must be free."""
    machine, device = situation.machine, situation.bundle.device
    if machine is None:
        return unknown(ELSEWHERE)
    if device == "cpu":
        return _on_cpu(situation, machine)
    if device != "cuda":
        return unknown("the device that this lane serves on is not known")
    if situation.flag(EXPLICIT):
        return not_applicable(f"{EXPLICIT} is set, so vLLM ignores gpu_memory_utilization")
    return _on_gpus(situation, machine)


def _on_gpus(situation: Situation, machine: Machine) -> CheckResult:
    share = flags.share(situation)
    if share is None:
        return unknown("gpu_memory_utilization is not set, and this vLLM's default is not known")
    size = flags.count(situation, "tensor_parallel_size", 1) or 1
    gpu_figures = []
    for gpu in visible(situation, machine)[:size]:
        total, free = gpu.memory_bytes, gpu.free_bytes
        if gpu.unified:
            total, free = machine.memory_bytes, machine.available_bytes
        if total is None or free is None:
            continue
        requested = math.ceil(total * share)
        if free < requested:
            shared = " of the memory it shares with the machine" if gpu.unified else ""
            return fails(
                f"Free memory on {gpu.name} {gpu.index} ({gib(free)} of {gib(total)}{shared}) is "
                f"less than desired GPU memory utilization ({share}, {gib(requested)})",
                cause="other processes use memory there: another server, or one left behind",
                fix=f"stop them (nvidia-smi lists them), or set gpu_memory_utilization = "
                f"{math.floor(free / total * 100) / 100} in [serve]",
            )
        gpu_figures.append(f"{gib(free)} free on GPU {gpu.index}, {gib(requested)} requested")
    return (
        ok("; ".join(gpu_figures))
        if gpu_figures
        else unknown("the GPUs do not report their memory")
    )


def _on_cpu(situation: Situation, machine: Machine) -> CheckResult:
    available, total = machine.available_bytes, machine.memory_bytes
    if available is None or total is None:
        return unknown("this machine does not report its memory")
    space = situation.environment.get(SPACE, "").strip()
    explicit = situation.flag(EXPLICIT)
    if space:
        if not space.isdecimal():
            return fails(
                f"{SPACE}={space!r} is not an integer number of GiB",
                cause="a typing error in [env] of the lane: vLLM reads it with int()",
                fix=f'{SPACE} = "4" in [env]',
            )
        requested, setting = int(space) * GIB, f"{SPACE}={space}"
    elif explicit:
        requested, setting = int(explicit), f"{EXPLICIT} {explicit}"
    else:
        share = flags.share(situation)
        if share is None:
            return unknown("no size is set, and this vLLM's default is not known")
        requested, setting = math.ceil(total * share), f"gpu_memory_utilization {share}"
    if requested > available and not (space or explicit) and (machine.numa_nodes or 1) > 1:
        return unknown(
            f"{setting} is {gib(requested)} of the whole machine, which has {gib(available)} "
            f"available; vLLM takes it from one of the {machine.numa_nodes} NUMA nodes"
        )
    if requested > available:
        return fails(
            f"Available memory ({gib(available)} of {gib(total)}) is less than requested "
            f"({setting}: {gib(requested)})",
            cause="on the CPU backend the KV cache, and with gpu_memory_utilization all memory "
            "of vLLM, is part of the machine's memory",
            fix=f"stop other processes, or set {SPACE} (GiB) lower in [env] of the lane",
        )
    return ok(f"{gib(available)} available, {gib(requested)} requested ({setting})")


def kv_cache(situation: Situation) -> CheckResult:
    """One request of full length must fit in the memory left for the cache.

    On a GPU, only the weights are subtracted. Activations and graphs, which can only be estimated,
    are not, so a failure here is certain.
    """
    device, room = situation.bundle.device, _room(situation)
    if not situation.model.config or device not in ("cpu", "cuda") or room is None:
        return unknown("no memory plan is possible for this model on this machine")
    try:
        serving = fit.serving(situation.serve, situation.bundle.vllm, device)
        planned = memory_plan.plan(shape_of(dict(situation.model.config)), serving, room)
    except UserError as error:
        return unknown(f"no plan can be made: {str(error).splitlines()[0]}")
    if planned.refused:
        return unknown(f"no plan can be made: {planned.refused[0]}")
    needed, available = planned.needed_bytes, planned.kv_memory_bytes
    if planned.fits is None or needed is None or available is None:
        return unknown("the model's memory on this machine cannot be computed")
    if planned.fits:
        return ok(f"{gib(needed)} for one request of {planned.context} tokens, {gib(available)}")
    longest = planned.largest_context
    return fails(
        f"To serve at least one request with the model's max seq len ({planned.context}), "
        f"{gib(needed)} KV cache is needed, which is larger than the available KV cache memory "
        f"({gib(max(available, 0))})",
        cause="the weights and the configured size leave less than one request of that length "
        "needs",
        fix=(f"max_model_len = {longest} in [serve], or " if longest else "")
        + 'more memory, kv_cache_dtype = "fp8", a larger tensor_parallel_size',
    )


def _room(situation: Situation) -> Room | None:
    """Return the available memory; None if it is not known."""
    machine, explicit = situation.machine, situation.flag(EXPLICIT)
    space = situation.environment.get(SPACE, "").strip()
    if situation.bundle.device == "cpu" and space:  # there it overrides the flag
        return Room(kv_memory=int(space) * GIB) if space.isdecimal() and int(space) else None
    if isinstance(explicit, int) and explicit > 0:
        return Room(kv_memory=explicit)
    if situation.bundle.device == "cpu":
        return None
    share = flags.share(situation)
    if machine is None or share is None:
        return None
    totals = [
        machine.memory_bytes if gpu.unified else gpu.memory_bytes
        for gpu in visible(situation, machine)
    ]
    if not totals or totals[0] is None:
        return None
    return Room(device_memory=totals[0], utilization=share, overhead=0)
