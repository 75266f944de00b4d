"""Recorded machines, as their drivers report them, for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from pytest_vllm_gates.machine import nvidia_smi
from pytest_vllm_gates.machine.types import Gpu, Machine, ProcessLimits

if TYPE_CHECKING:
    import pytest

RECORDED = Path(__file__).parent / "recorded"
CAPABILITIES = {
    "h100": "9.0",
    "h100x8": "9.0",
    "rtx5090": "12.0",
    "gb10": "12.1",
    "t4": "7.5",
    "a100mig": "8.0",
}
GIB = 2**30


def recorded(name: str, **changes: Any) -> Machine:
    """Return a recorded machine, with 128 GiB of memory and ordinary limits."""
    document = (RECORDED / f"{name}.xml").read_text()
    count = document.count("<gpu id=")
    driver, gpus = nvidia_smi.read(document, f"{CAPABILITIES[name]}\n" * count)
    machine = Machine(
        os="Linux-6.8.0-x86_64-with-glibc2.39",
        python="3.12.3",
        cpu="a processor",
        cores=64,
        memory_bytes=128 * GIB,
        available_bytes=120 * GIB,
        gpus=tuple(gpu.name for gpu in gpus),
        devices=gpus,
        driver=driver,
        limits=ProcessLimits((1024, 1048576), 8 * GIB, 8 * GIB),
    )
    return replace(machine, **changes)


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, gpus: int = 1) -> None:
    """Put a recorded machine's GPUs in the place of this one's, for processes started here, too."""
    document = (RECORDED / f"{name}.xml").read_text()
    before, first, _ = document.partition("\t<gpu ")
    gpu = (first + document.partition(first)[2]).partition("</gpu>")[0] + "</gpu>\n"
    output = before + gpu * gpus + "</nvidia_smi_log>\n"
    stand_in(folder, monkeypatch, output, CAPABILITIES[name])


def stand_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: str,
    capability: str = "",
    status: int = 0,
) -> None:
    """Put an `nvidia-smi` that says `document` in the place of NVML and of this machine's own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "document").write_text(document)
    program = folder / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in -q) cat {folder}/document;; *) echo "{capability}";; esac\n'
        f"exit {status}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    # No library: NVML is not to be found, here or in what is started.
    (folder / "libnvidia-ml.so.1").write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)


@dataclass(frozen=True)
class Memory:
    total: int
    free: int
    used: int = 0


@dataclass(frozen=True)
class Utilization:
    gpu: int


class Nvml:
    """NVML, answering as the driver of a recorded machine would; what it lacks it refuses."""

    def __init__(self, machine: Machine, links: int = 0, *, as_bytes: bool = False) -> None:
        self.machine, self.links, self.as_bytes = machine, links, as_bytes

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in dir(self):
            if name.startswith("nvml"):
                monkeypatch.setattr(pynvml, name, getattr(self, name))

    def _text(self, value: str) -> str | bytes:
        return value.encode() if self.as_bytes else value

    def nvmlInit(self) -> None:
        """Start."""

    def nvmlShutdown(self) -> None:
        """End."""

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        return self._text(self.machine.driver.version or "")

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        major, _, minor = (self.machine.driver.cuda or "0.0").partition(".")
        return int(major) * 1000 + int(minor) * 10

    def nvmlDeviceGetCount(self) -> int:
        return len(self.machine.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self.machine.devices[index]

    def nvmlDeviceGetName(self, gpu: Gpu) -> str | bytes:
        return self._text(gpu.name)

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str | bytes:
        return self._text(gpu.uuid or "")

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu, version: object = None) -> Memory:
        if gpu.memory_bytes is None or gpu.free_bytes is None or version is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return Memory(gpu.memory_bytes, gpu.free_bytes)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> tuple[int, ...]:
        return tuple(map(int, (gpu.capability or "0.0").split(".")))

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        if gpu.mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(gpu.mig), int(gpu.mig)]

    def nvmlDeviceGetUtilizationRates(self, _: Gpu) -> Utilization:
        return Utilization(gpu=80)

    def nvmlDeviceGetClockInfo(self, _: Gpu, clock: int) -> int:
        assert clock == pynvml.NVML_CLOCK_SM
        return 1410

    def nvmlDeviceGetPowerUsage(self, gpu: Gpu) -> int:
        if gpu.unified:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 350_500

    def nvmlDeviceGetTemperature(self, gpu: Gpu, _: int) -> int:
        return 50 + gpu.index

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: Gpu) -> int:
        return int(pynvml.nvmlClocksThrottleReasonSwPowerCap if gpu.index == 0 else 0)

    def nvmlDeviceGetNvLinkState(self, _: Gpu, link: int) -> int:
        if not self.links:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if link >= self.links:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1

    def nvmlDeviceGetP2PStatus(self, _: Gpu, __: Gpu, ___: int) -> int:
        return int(
            pynvml.NVML_P2P_STATUS_OK if self.links else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
        )

    def nvmlDeviceGetTopologyCommonAncestor(self, _: Gpu, __: Gpu) -> int:
        return int(pynvml.NVML_TOPOLOGY_SYSTEM)
