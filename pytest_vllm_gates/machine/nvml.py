"""Queries the NVIDIA driver through NVML, each field on its own, since any may be refused.

`inspect_gpus` describes the GPUs. `watched` samples utilization, clock, power and temperature
during a block: a lower clock or a limit that was reached explains worse figures.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_vllm_gates.machine.types import Gpu, NvidiaDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")
NAME = "NVML"
LOOK_S = 0.1
MILLIWATTS = 1000
PERCENT = 100


def inspect_gpus() -> tuple[NvidiaDriver, tuple[Gpu, ...], tuple[tuple[str, ...], ...]]:
    """Return the driver, its GPUs and how they reach each other; without one, why there is none."""
    import pynvml  # noqa: PLC0415 - only where a driver may be

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvidiaDriver(problem=f"NVML: {error}"), (), ()
    try:
        return _inspect(pynvml)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _inspect(nvml: Any) -> tuple[NvidiaDriver, tuple[Gpu, ...], tuple[tuple[str, ...], ...]]:
    def query(question: Callable[..., T], *about: object) -> T | None:
        try:
            return question(*about)
        except (nvml.NVMLError, AttributeError):
            return None

    cuda = query(nvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = NvidiaDriver(
        version=_as_text(query(nvml.nvmlSystemGetDriverVersion)),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        told_by=NAME,
    )
    handles = [
        (index, handle)
        for index in range(query(nvml.nvmlDeviceGetCount) or 0)
        if (handle := query(nvml.nvmlDeviceGetHandleByIndex, index)) is not None
    ]
    gpus = tuple(_gpu(nvml, query, index, handle) for index, handle in handles)
    return driver, gpus, _topology(nvml, query, [handle for _, handle in handles])


def _gpu(nvml: Any, query: Callable[..., Any], index: int, handle: object) -> Gpu:
    capability = query(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = query(nvml.nvmlDeviceGetMigMode, handle)
    total, free, refused = _memory(nvml, query, handle)
    links = [query(nvml.nvmlDeviceGetNvLinkState, handle, link) for link in _links(nvml)]
    return Gpu(
        index=index,
        name=_as_text(query(nvml.nvmlDeviceGetName, handle)) or "unknown",
        uuid=_as_text(query(nvml.nvmlDeviceGetUUID, handle)),
        memory_bytes=total,
        free_bytes=free,
        # With MIG on, the driver refuses the memory to users who may not see all of it.
        unified=refused and not (mig and mig[0]),
        capability=".".join(map(str, capability)) if capability else None,
        mig=bool(mig[0]) if mig else None,
        nvlinks=None if all(state is None for state in links) else links.count(1),
    )


def _links(nvml: Any) -> range:
    return range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0))


def _memory(
    nvml: Any, query: Callable[..., Any], handle: object
) -> tuple[int | None, int | None, bool]:
    """Return total and free bytes, and whether this GPU reports no dedicated memory."""
    memory = query(
        nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None)
    ) or query(nvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None and memory.total:
        return memory.total - getattr(memory, "reserved", 0), memory.free, False
    try:
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return None, None, True
    except nvml.NVMLError:
        return None, None, False
    return None, None, True


def _topology(
    nvml: Any, query: Callable[..., Any], handles: list[object]
) -> tuple[tuple[str, ...], ...]:
    """Return the link between each two GPUs, as `nvidia-smi topo` names it."""
    if len(handles) < 2:  # noqa: PLR2004 - a single GPU has no links
        return ()
    names = {
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    links = {}
    for first, second in itertools.combinations(range(len(handles)), 2):
        pair = handles[first], handles[second]
        linked = query(nvml.nvmlDeviceGetP2PStatus, *pair, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if linked == nvml.NVML_P2P_STATUS_OK:
            links[first, second] = "NVLINK"
        else:
            path = query(nvml.nvmlDeviceGetTopologyCommonAncestor, *pair)
            links[first, second] = "unknown" if path is None else names.get(path, "unknown")
    size = range(len(handles))
    return tuple(
        tuple(
            "X" if first == second else links[min(first, second), max(first, second)]
            for second in size
        )
        for first in size
    )


def _as_text(value: object) -> str | None:
    """Return a value of NVML as text; older bindings return bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if value else None


@contextlib.contextmanager
def gpu_activity() -> Iterator[Mapping[str, float]]:
    """Sample every GPU while the block lasts; the mapping is filled in at its end.

    Means over GPUs and looks: `gpu_utilization` and `gpu_throttled` as shares, `gpu_sm_clock_mhz`,
    `gpu_power_w`, and the highest `gpu_temperature_c`. Empty without a driver; a figure that it
    refuses is left out.
    """
    import pynvml  # noqa: PLC0415 - only where a driver may be

    figures: dict[str, float] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield figures
        return
    looks: list[dict[str, float]] = []
    over = threading.Event()

    def look() -> None:
        handles = _handles(pynvml)
        while True:
            looks.extend(_look(pynvml, handle) for handle in handles)
            if over.wait(LOOK_S):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield figures
    finally:
        over.set()
        thread.join()
        figures.update(_summary(looks))
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _handles(nvml: Any) -> list[object]:
    with contextlib.suppress(nvml.NVMLError):
        return [
            nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())
        ]
    return []


def _look(nvml: Any, handle: object) -> dict[str, float]:
    def throttled(reasons: int) -> float:
        # At rest a clock is low for want of work.
        return float(bool(reasons & ~nvml.nvmlClocksThrottleReasonGpuIdle))

    questions: dict[str, Callable[[], float]] = {
        "gpu_utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / PERCENT,
        "gpu_sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "gpu_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / MILLIWATTS,
        "gpu_temperature_c": lambda: nvml.nvmlDeviceGetTemperature(
            handle, nvml.NVML_TEMPERATURE_GPU
        ),
        "gpu_throttled": lambda: throttled(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    figures = {}
    for name, question in questions.items():
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            figures[name] = float(question())
    return figures


def _summary(looks: list[dict[str, float]]) -> dict[str, float]:
    series: dict[str, list[float]] = {}
    for look in looks:
        for name, value in look.items():
            series.setdefault(name, []).append(value)
    return {
        name: round(max(values) if name == "gpu_temperature_c" else statistics.fmean(values), 3)
        for name, values in series.items()
    }
