"""A machine is described from NVML, nvidia-smi and the kernel's files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pynvml
import pytest
from machines import CAPABILITIES, RECORDED, Memory, Nvml, recorded, stand_in

from pytest_vllm_gates.machine import inspect as machine_inspect, nvidia_smi, nvml

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.machine.types import Gpu

GIB = 2**30


@pytest.mark.parametrize("name", CAPABILITIES)
def test_nvml_and_nvidia_smi_report_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = recorded(name)
    Nvml(expected, as_bytes=name == "t4").install(monkeypatch)
    driver, gpus, _ = nvml.inspect_gpus()
    assert gpus == expected.devices
    assert driver == replace(expected.driver, told_by="NVML")


@dataclass(frozen=True)
class Reserved(Memory):
    reserved: int = 0


@pytest.mark.parametrize("knows_reserved", [True, False])
def test_captured_machine_reports_the_same_either_way(
    monkeypatch: pytest.MonkeyPatch, *, knows_reserved: bool
) -> None:
    """Bindings of older drivers know no second version, and count as used what is reserved."""
    captured = json.loads((RECORDED / "h100.nvml.json").read_text())

    class Captured(Nvml):
        def nvmlDeviceGetMemoryInfo(  # noqa: N802 - NVML's name
            self, _: Gpu, version: object = None
        ) -> Memory:
            if version is None:
                return Memory(**captured["memory"])
            if not knows_reserved:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return Reserved(**captured["memory_v2"])

    expected = recorded("h100")
    Captured(expected).install(monkeypatch)
    _, (gpu,), _ = nvml.inspect_gpus()
    assert (gpu.name, gpu.capability) == (
        captured["name"],
        ".".join(map(str, captured["capability"])),
    )
    assert gpu.free_bytes == expected.devices[0].free_bytes == 85_017_493_504
    if knows_reserved:
        # vLLM printed 79.18 GiB there as the device's.
        assert gpu.memory_bytes == expected.devices[0].memory_bytes == 85_017_493_504
    else:
        assert gpu.memory_bytes == 85_520_809_984


def test_links_between_eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml(recorded("h100x8"), links=18).install(monkeypatch)
    driver, gpus, topology = nvml.inspect_gpus()
    assert (driver.version, driver.cuda, len(gpus)) == ("550.90.07", "12.4", 8)
    assert {gpu.nvlinks for gpu in gpus} == {18}
    assert topology[0] == ("X", *["NVLINK"] * 7)
    assert topology[7] == (*["NVLINK"] * 7, "X")

    Nvml(recorded("h100x8")).install(monkeypatch)
    _, gpus, topology = nvml.inspect_gpus()
    assert gpus[0].nvlinks is None
    assert topology[1][:3] == ("SYS", "X", "SYS")


def test_memory_reserved_by_the_driver_is_not_available() -> None:
    (gpu, *_) = recorded("h100x8").devices
    assert gpu.memory_bytes == (81559 - 550) * 2**20
    assert gpu.free_bytes == 81007 * 2**20
    assert recorded("t4").devices[0].memory_bytes == 15109 * 2**20


def test_unified_memory_differs_from_memory_hidden_by_mig() -> None:
    (spark,) = recorded("gb10").devices
    assert (spark.unified, spark.memory_bytes, spark.free_bytes) == (True, None, None)
    (cut,) = recorded("a100mig").devices
    assert (cut.unified, cut.mig, cut.memory_bytes) == (False, True, None)


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_PERMISSION"])
def test_driver_error_is_reported(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{error}"))

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    driver, gpus, topology = nvml.inspect_gpus()
    assert (gpus, topology, driver.version) == ((), (), None)
    assert driver.problem is not None and driver.problem.startswith("NVML: ")


def test_nvidia_smi_replaces_a_missing_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "WARNING: infoROM\n" + (RECORDED / "rtx5090.xml").read_text()
    stand_in(tmp_path, monkeypatch, document, "12.0")
    here = machine_inspect.inspect()
    assert here.gpus == ("NVIDIA GeForce RTX 5090",)
    assert (here.devices[0].capability, here.driver.told_by) == ("12.0", "nvidia-smi")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found",
        "<nvidia_smi_log><gpu",
        "<nvidia_smi_log>&x;</nvidia_smi_log>",
    ],
)
def test_nvidia_smi_output_without_a_document_is_the_problem(output: str) -> None:
    driver, gpus = nvidia_smi.read(output)
    assert gpus == ()
    assert driver.problem == (output or "it printed nothing")


def test_newer_version_fields_are_read() -> None:
    document = (RECORDED / "gb10.xml").read_text()
    document = document.replace("driver_version>", "kmd_version>")
    document = document.replace("<cuda_version>", "<cuda_umd_version>")
    document = document.replace("</cuda_version>", "</cuda_umd_version>")
    driver, _ = nvidia_smi.read(document)
    assert (driver.version, driver.cuda) == ("580.95.05", "13.0")


def test_machine_without_gpus_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "NVIDIA-SMI has failed", status=9)
    here = machine_inspect.inspect()
    assert here.devices == ()
    assert here.driver.problem
    assert here.memory_bytes and here.available_bytes
    assert here.limits.open_files


@pytest.mark.parametrize(
    ("status", "nodes"),
    [
        ("Mems_allowed:\t00000001\nMems_allowed_list:\t0\n", 1),
        ("Mems_allowed_list:\t0-1,3\n", 3),
        ("Mems_allowed_list:\n", None),
        ("Name:\tpython\n", None),
    ],
)
def test_memory_nodes_are_those_this_process_may_have(
    status: str, nodes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status").write_text(status, encoding="utf-8")
    monkeypatch.setattr(machine_inspect, "STATUS", tmp_path / "status")
    assert machine_inspect.inspect().numa_nodes == nodes


def test_secrets_are_redacted() -> None:
    environment = machine_inspect.relevant(
        {
            "HF_TOKEN": "hf_1", "VLLM_API_KEY": "sk-2", "NCCL_DEBUG": "INFO", "HOME": "/root",
            "CUDA_VISIBLE_DEVICES": "0,1", "HF_ENDPOINT": "https://me:pass@mirror.example/hf",
        }
    )  # fmt: skip
    assert environment == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_ENDPOINT": "https://[redacted]@mirror.example/hf",
        "HF_TOKEN": "[redacted]",
        "NCCL_DEBUG": "INFO",
        "VLLM_API_KEY": "[redacted]",
    }


@pytest.mark.parametrize(
    ("file", "content", "kind"),
    [
        ("proc/1/cgroup", "0::/kubepods.slice/pod1\n", "kubernetes"),
        ("proc/1/cgroup", "12:cpu:/docker/0123\n", "docker"),
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/1/cgroup", "0::/init.scope\n", None),
    ],
)
def test_container_kind_is_detected_by_its_traces(
    file: str, content: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert machine_inspect.kind(tmp_path) == kind


@pytest.mark.parametrize(("content", "limit"), [("8589934592\n", 8 * GIB), ("max\n", None)])
def test_memory_limit_of_a_container(content: str, limit: int | None, tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(content)
    assert machine_inspect.memory_limit(tmp_path) == limit


def test_interfaces_have_their_mtu() -> None:
    machine = machine_inspect.inspect()
    assert set(machine.mtus) <= set(machine.interfaces)
    assert all(size > 0 for size in machine.mtus.values())
    assert ("lo" in machine.interfaces) is ("lo" in machine.mtus)
