"""The shipped lanes are what `lane new` writes for a release; what each adds is listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import lane as lanes, of_release, outside, releases
from pytest_vllm_gates.environment import installed

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "3.11.7"
MADE = {
    "cpu": ("0.32.0", "cpu"), "cpu-previous": ("0.30.0", "cpu"), "cpu-tp2": ("0.32.0", "cpu"),
    "cuda": ("0.32.0", "cuda"), "dgx-spark": ("0.32.0", "cuda"),
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    # Measured for this bundle only: another release has to be measured first.
    "cpu": {"batch_invariant": True},
    "cpu-previous": {},
    "cpu-tp2": {"env": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},
                "serve": {"tensor_parallel_size": 2}},
    # A driver for the CUDA that the lock's torch was built for.
    "cuda": {"expects": {"cuda": "13"}},
    "dgx-spark": {"env": {"RAY_memory_monitor_refresh_ms": "0",
                          "RAY_memory_usage_threshold": "0.99"},
                  "serve": {"gpu_memory_utilization": 0.85}, "overlay": "dgx-spark-overlay",
                  "expects": {"driver": "580", "cuda": "13.0", "gpu": "GB10"}},
}  # fmt: skip
"""The additional settings of a shipped lane."""
NAMED = ("title", "lock", "vllm", "device")
"""The keys that `lane new` writes into the file; all else follows from them."""
LOCKS = {"cpu": "cpu", "cpu-previous": "cpu-previous", "cuda": "cuda"}


@pytest.mark.parametrize("name", MADE)
def test_shipped_lane_is_that_of_its_release_and_what_it_adds(name: str) -> None:
    _, shipped = outside.read(lanes.SHIPPED / f"{name}.toml")
    assert (shipped["vllm"], shipped["device"]) == MADE[name]
    assert {key: value for key, value in shipped.items() if key not in NAMED} == OWN[name]


def test_every_shipped_lane_is_listed() -> None:
    assert sorted(MADE) == sorted(path.stem for path in lanes.SHIPPED.glob("*.toml"))


@pytest.mark.parametrize("name", LOCKS)
def test_shipped_lock_is_resolved_from_what_lane_new_writes(name: str) -> None:
    version, device = MADE[name]
    found = releases.table().devices[device]
    lines = (lanes.SHIPPED / f"{name}.in").read_text().splitlines()
    requirements = [line for line in lines if line and not line.startswith("#")]
    # Refused builds of torch are those of the sources with which the lock was resolved.
    refused = [line for line in requirements if line.startswith("torch!=")]
    written = [f"{found.package}=={version}", *found.besides]
    assert [line for line in requirements if line not in refused] == written
    assert not refused or found.backend is None
    excludes = lanes.SHIPPED / f"{name}.excludes"
    left_out = excludes.read_text().split() if excludes.exists() else []
    assert left_out == list(found.without)
    pins = installed.pinned_requirements(lanes.SHIPPED / f"{name}.txt", PYTHON)
    assert str(pins[found.package].specifier) == f"=={version}"
    assert not {*found.without} & {*pins}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_lane_with_only_its_release_is_complete(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_release, "device_here", lambda: device)
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "mine.toml").write_text('vllm = "0.29.0"\n')
    lane = lanes.load("mine", tmp_path)
    assert lane.lock_path == tmp_path / "lanes" / f"mine-{device}.txt"
    assert (lane.device, lane.vllm) == (device, "0.29.0")
    assert lane.start.server == ("-m", "vllm.entrypoints.launchers.api_server.entry")
    assert "enable_scale_out" not in lane.serve  # vLLM has it since 0.30.0
    shipped = lanes.load(device, tmp_path)
    assert lane.env == shipped.env
    assert (lane.python_version, lane.torch_backend) == (
        shipped.python_version, shipped.torch_backend
    )  # fmt: skip
