"""Activity of GPUs during a load: means over all of them, without refused figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pynvml
from machines import Nvml, recorded

from pytest_vllm_gates.machine import nvml

if TYPE_CHECKING:
    import pytest


def test_every_gpu_is_sampled_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LOOK_S", 0.001)
    Nvml(recorded("h100x8")).install(monkeypatch)
    with nvml.gpu_activity() as figures:
        assert figures == {}
        time.sleep(0.01)
    assert figures == {
        "gpu_utilization": 0.8,
        "gpu_sm_clock_mhz": 1410.0,
        "gpu_power_w": 350.5,
        "gpu_temperature_c": 57.0,
        "gpu_throttled": 0.125,
    }


def test_refused_figures_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml(recorded("gb10")).install(monkeypatch)
    with nvml.gpu_activity() as figures:
        pass
    assert "gpu_power_w" not in figures
    assert figures["gpu_utilization"] == 0.8


def test_no_driver_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    with nvml.gpu_activity() as figures:
        pass
    assert figures == {}
