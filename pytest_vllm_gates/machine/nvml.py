"""Asks the NVIDIA driver itself, through NVML: each field on its own, for any may be refused.

What the GPUs do meanwhile, through NVML: busy or not, at which clock, at what power, how hot.

A figure that is worse beside a clock that is lower, or a limit that was reached, is explained.
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


def ask() -> tuple[NvidiaDriver, tuple[Gpu, ...], tuple[tuple[str, ...], ...]]:
    """Return the driver, its GPUs and how they reach each other; without one, why there is none."""
    import pynvml  # noqa: PLC0415 - only where a driver may be

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvidiaDriver(problem=f"NVML: {error}"), (), ()
    try:
        return _ask(pynvml)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _ask(nvml: Any) -> tuple[NvidiaDriver, tuple[Gpu, ...], tuple[tuple[str, ...], ...]]:
    def told(question: Callable[..., T], *about: object) -> T | None:
        try:
            return question(*about)
        except (nvml.NVMLError, AttributeError):
            return None

    cuda = told(nvml.nvmlSystemGetCudaDriverVersion_v2)
    driver = NvidiaDriver(
        version=_text(told(nvml.nvmlSystemGetDriverVersion)),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        told_by=NAME,
    )
    handles = [
        (index, handle)
        for index in range(told(nvml.nvmlDeviceGetCount) or 0)
        if (handle := told(nvml.nvmlDeviceGetHandleByIndex, index)) is not None
    ]
    gpus = tuple(_gpu(nvml, told, index, handle) for index, handle in handles)
    return driver, gpus, _topology(nvml, told, [handle for _, handle in handles])


def _gpu(nvml: Any, told: Callable[..., Any], index: int, handle: object) -> Gpu:
    capability = told(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = told(nvml.nvmlDeviceGetMigMode, handle)
    total, free, refused = _memory(nvml, told, handle)
    links = [told(nvml.nvmlDeviceGetNvLinkState, handle, link) for link in _links(nvml)]
    return Gpu(
        index=index,
        name=_text(told(nvml.nvmlDeviceGetName, handle)) or "unknown",
        uuid=_text(told(nvml.nvmlDeviceGetUUID, handle)),
        memory_bytes=total,
        free_bytes=free,
        # With MIG on, memory is refused to those who may not see the whole of it.
        unified=refused and not (mig and mig[0]),
        capability=".".join(map(str, capability)) if capability else None,
        mig=bool(mig[0]) if mig else None,
        nvlinks=None if all(state is None for state in links) else links.count(1),
    )


def _links(nvml: Any) -> range:
    return range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0))


def _memory(
    nvml: Any, told: Callable[..., Any], handle: object
) -> tuple[int | None, int | None, bool]:
    """Return total and free bytes, and whether this GPU has no memory that could be told."""
    memory = told(
        nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None)
    ) or told(nvml.nvmlDeviceGetMemoryInfo, handle)
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
    nvml: Any, told: Callable[..., Any], handles: list[object]
) -> tuple[tuple[str, ...], ...]:
    """Return what lies between each two GPUs, in the words of `nvidia-smi topo`."""
    if len(handles) < 2:  # noqa: PLR2004 - one alone has nobody to reach
        return ()
    ways = {
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    found = {}
    for number, other in itertools.combinations(range(len(handles)), 2):
        pair = handles[number], handles[other]
        linked = told(nvml.nvmlDeviceGetP2PStatus, *pair, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if linked == nvml.NVML_P2P_STATUS_OK:
            found[number, other] = "NVLINK"
        else:
            way = told(nvml.nvmlDeviceGetTopologyCommonAncestor, *pair)
            found[number, other] = "unknown" if way is None else ways.get(way, "unknown")
    size = range(len(handles))
    return tuple(
        tuple("X" if item == other else found[min(item, other), max(item, other)] for other in size)
        for item in size
    )


def _text(value: object) -> str | None:
    """Return what NVML tells as text; older bindings give bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if value else None


LOOK_S = 0.1
MILLIWATTS = 1000
PERCENT = 100


@contextlib.contextmanager
def watched() -> Iterator[Mapping[str, float]]:
    """Look at every GPU while the block lasts; what it gives is filled in at its end.

    Means over GPUs and looks: `gpu_utilization` and `gpu_throttled` as shares, `gpu_sm_clock_mhz`,
    `gpu_power_w`, and the highest `gpu_temperature_c`. Empty where no driver answers; a figure that
    it refuses is left out.
    """
    import pynvml  # noqa: PLC0415 - only where a driver may be

    told: dict[str, float] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield told
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
        yield told
    finally:
        over.set()
        thread.join()
        told.update(_summary(looks))
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
    found = {}
    for name, question in questions.items():
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            found[name] = float(question())
    return found


def _summary(looks: list[dict[str, float]]) -> dict[str, float]:
    series: dict[str, list[float]] = {}
    for look in looks:
        for name, value in look.items():
            series.setdefault(name, []).append(value)
    return {
        name: round(max(values) if name == "gpu_temperature_c" else statistics.fmean(values), 3)
        for name, values in series.items()
    }
