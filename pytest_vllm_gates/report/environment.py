"""The machine, and the environment of a lane, as a document and as a person reads them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.facts.bundle import MAIN_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.bundle import Bundle
    from pytest_vllm_gates.machine.types import Gpu, Machine

GIB = 2**30


def machine_document(machine: Machine) -> dict[str, Any]:
    """Return the machine as JSON."""
    return dataclasses.asdict(machine)


def bundle_document(bundle: Bundle) -> dict[str, Any]:
    """Return what a lane's environment brings as JSON; the long lists of names are left out."""
    return {
        "versions": {
            name: bundle.versions[name] for name in MAIN_PACKAGES if name in bundle.versions
        },
        "locations": dict(bundle.locations),
        "device": bundle.device,
        "torch_cuda": bundle.torch_cuda,
        "torch_kernels": bundle.torch_kernels and dataclasses.asdict(bundle.torch_kernels),
        "vllm_kernels": bundle.vllm_kernels and dataclasses.asdict(bundle.vllm_kernels),
        "nccl": bundle.nccl,
        "plugins": list(bundle.plugins),
    }


def lines(machine: Machine) -> Iterator[str]:
    """Yield the machine as a person reads it."""
    limits = machine.limits
    yield _line("system", f"{machine.os}, {machine.container or 'bare metal'}")
    yield _line("processor", f"{machine.cpu}, {machine.cores} cores")
    memory = f"{_gib(machine.memory_bytes)}, {_gib(machine.available_bytes)} available"
    yield _line("memory", memory)
    yield _line("driver", _driver(machine))
    for gpu in machine.devices:
        yield _line(f"GPU {gpu.index}", ", ".join(_gpu(gpu)))
    for index, row in enumerate(machine.topology):
        yield _line(f"GPU {index} to", "  ".join(row))
    for folder in machine.compatibility:
        yield _line("CUDA package", folder)
    if limits.open_files:
        yield _line("open files", f"{limits.open_files[0]}, at most {limits.open_files[1]}")
    yield _line(
        "shared memory",
        f"{_gib(limits.shared_memory_bytes)}, {_gib(limits.shared_memory_free_bytes)} free",
    )
    for name, value in machine.environment.items():
        yield _line("environment", f"{name}={value}")


def bundle_lines(lane: str, bundle: Bundle) -> Iterator[str]:
    """Yield what a lane's environment brings as a person reads it."""
    yield _line("lane", f"{lane}, serves on {bundle.device or 'unknown'}")
    for name in MAIN_PACKAGES:
        if name in bundle.versions:
            place = bundle.locations.get(name, "")
            yield _line(name, f"{bundle.versions[name]}  {place}".rstrip())
    if bundle.torch_cuda:
        yield _line("CUDA of torch", bundle.torch_cuda)
    for part, kernels in (("torch", bundle.torch_kernels), ("vLLM", bundle.vllm_kernels)):
        if kernels:
            listed = [f"sm_{one}" for one in kernels.machine_code]
            listed += [f"compute_{one}" for one in kernels.ptx or ()]
            yield _line(f"{part} kernels", " ".join(listed))


def _driver(machine: Machine) -> str:
    driver = machine.driver
    if driver.problem:
        return f"none answers ({driver.problem})"
    return f"{driver.version or 'unknown'}, CUDA {driver.cuda or 'unknown'} (by {driver.told_by})"


def _gpu(gpu: Gpu) -> Iterator[str]:
    yield gpu.name
    if gpu.unified:
        yield "unified memory: it has none of its own and shares the machine's"
    else:
        yield f"{_gib(gpu.memory_bytes)}, {_gib(gpu.free_bytes)} free"
    yield f"compute capability {gpu.capability or 'unknown'}"
    if gpu.mig:
        yield "MIG"
    if gpu.nvlinks:
        yield f"{gpu.nvlinks} NVLinks"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / GIB:.1f} GiB"


def _line(name: str, value: str) -> str:
    return f"{name:<18} {value}"
