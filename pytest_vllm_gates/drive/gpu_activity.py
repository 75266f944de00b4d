"""What the GPUs do meanwhile, through NVML: busy or not, at which clock, at what power, how hot.

A figure that is worse beside a clock that is lower, or a limit that was reached, is explained.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
        return [nvml.nvmlDeviceGetHandleByIndex(one) for one in range(nvml.nvmlDeviceGetCount())]
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
