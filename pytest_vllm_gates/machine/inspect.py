"""Inspects the machine: processor, memory, limits, container, and its NVIDIA GPUs."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.machine import nvidia_smi, nvml
from pytest_vllm_gates.machine.types import Machine, ProcessLimits
from pytest_vllm_gates.redaction.shown import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

# A file that an engine creates in its containers, or a word in the control group of process 1.
FILES = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}
WORDS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}
# Variables that servers and their libraries read.
PREFIXES = ("CUDA_", "NCCL_", "VLLM_", "HF_", "TORCH_", "NVIDIA_VISIBLE_", "OMP_NUM_")
NAMES = ("LD_LIBRARY_PATH", "TRANSFORMERS_OFFLINE")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only its size is read
NETWORK = Path("/sys/class/net")
STATUS = Path("/proc/self/status")
COMPATIBILITY = "cuda*/compat"


def kind(root: Path = Path("/")) -> str | None:
    """Return what kind of container this is, or None for none."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    with contextlib.suppress(OSError):
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8")
        for word, name in WORDS.items():
            if word in groups:
                return name
    return next((name for file, name in FILES.items() if (root / file).exists()), None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the control group's memory limit in bytes, which the kernel enforces, or None."""
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int((root / file).read_text(encoding="utf-8"))
    return None


def inspect() -> Machine:
    """Return this machine's facts; what cannot be read is left empty."""
    driver, gpus, topology = nvml.inspect_gpus()
    if driver.problem:
        second, gpus = nvidia_smi.inspect_gpus()
        driver = driver if second.problem else second
    memory, available = _memory()
    return Machine(
        os=platform.platform(),
        python=platform.python_version(),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
        gpus=tuple(gpu.name for gpu in gpus),
        available_bytes=available,
        numa_nodes=_numa_nodes(),
        devices=gpus,
        driver=driver,
        topology=topology,
        container=kind(),
        limits=_limits(),
        interfaces=_interfaces(),
        mtus=_mtus(),
        compatibility=tuple(
            str(folder)
            for folder in sorted(Path("/usr/local").glob(COMPATIBILITY))
            if any(folder.glob("libcuda.so*"))
        ),
        environment=relevant(os.environ),
    )


def relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that bear on serving, sorted, without secrets."""
    return redacted(
        {
            name: value
            for name, value in sorted(environment.items())
            if name.startswith(PREFIXES) or name in NAMES
        }
    )


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> tuple[int | None, int | None]:
    """Return the memory there is and the memory that can be had, within the container's limit."""
    sizes: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0]) * 1024
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    limit = memory_limit()
    if limit and total and limit < total:
        total, available = limit, min(available or limit, limit)
    return total, available


def _interfaces() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        return tuple(sorted(name for _, name in socket.if_nameindex()))
    return ()


def _mtus(folder: Path = NETWORK) -> dict[str, int]:
    """Return the largest packet of each interface in bytes, as the kernel lists them."""
    mtus: dict[str, int] = {}
    for file in sorted(folder.glob("*/mtu")):
        with contextlib.suppress(OSError, ValueError):
            mtus[file.parent.name] = int(file.read_text(encoding="utf-8"))
    return mtus


def _numa_nodes() -> int | None:
    """Return how many nodes this process may have memory of, as the kernel lists them: 0-1,3."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("Mems_allowed_list:"):
                parts = [part.partition("-") for part in line.split()[1].split(",")]
                return sum(int(last or first) - int(first) + 1 for first, _, last in parts)
    return None


def _limits() -> ProcessLimits:
    shared = free = None
    with contextlib.suppress(OSError):
        system = os.statvfs(SHARED_MEMORY)
        shared, free = system.f_frsize * system.f_blocks, system.f_frsize * system.f_bavail
    return ProcessLimits(resource.getrlimit(resource.RLIMIT_NOFILE), shared, free)
