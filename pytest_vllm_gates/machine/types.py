"""Records of the machine a run happens on, as far as they decide whether a server boots."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as its driver reports it; None where it reports nothing."""

    index: int
    name: str
    uuid: str | None = None
    memory_bytes: int | None = None
    """The memory that programs can get: without the part that the driver keeps for itself."""
    free_bytes: int | None = None
    unified: bool = False
    """Whether it shares the machine's memory, so that the driver reports no dedicated memory."""
    capability: str | None = None
    """Compute capability, as `9.0`."""
    mig: bool | None = None
    nvlinks: int | None = None
    """Links that are up."""


@dataclass(frozen=True)
class NvidiaDriver:
    """The NVIDIA driver, or why it does not answer."""

    version: str | None = None
    cuda: str | None = None
    """The newest CUDA it runs, as `13.0`; that of a forward-compatibility package where loaded."""
    told_by: str | None = None
    problem: str | None = None
    """Why the facts are missing: no library, no driver, or a mismatch of the two."""


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of a process; None where the system does not report them."""

    open_files: tuple[int, int] | None = None
    """Soft and hard; -1 means unlimited."""
    shared_memory_bytes: int | None = None
    shared_memory_free_bytes: int | None = None


@dataclass(frozen=True)
class Machine:
    """The facts of this machine; memory in bytes."""

    os: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...]
    """The names of the GPUs that answer."""
    available_bytes: int | None = None
    """Memory that programs can get without swapping."""
    numa_nodes: int | None = None
    """The NUMA nodes whose memory this process may use."""
    devices: tuple[Gpu, ...] = ()
    driver: NvidiaDriver = NvidiaDriver()
    topology: tuple[tuple[str, ...], ...] = ()
    """The link between each two GPUs: NVLINK, or the distance through PCIe."""
    container: str | None = None
    """The container, as `docker`; None for bare metal."""
    limits: ProcessLimits = ProcessLimits()
    interfaces: tuple[str, ...] = ()
    """The names of its network interfaces."""
    mtus: Mapping[str, int] = field(default_factory=dict)
    """The largest packet of each interface, in bytes."""
    compatibility: tuple[str, ...] = ()
    """Folders with a forward-compatibility package of CUDA's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that servers read, without secrets."""
