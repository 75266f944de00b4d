"""What a machine is, from NVML, from nvidia-smi, from the kernel's files, and from neither."""

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
def test_nvml_tells_what_nvidia_smi_tells(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = recorded(name)
    Nvml(expected, as_bytes=name == "t4").install(monkeypatch)
    driver, gpus, _ = nvml.ask()
    assert gpus == expected.devices
    assert driver == replace(expected.driver, told_by="NVML")


@dataclass(frozen=True)
class Reserved(Memory):
    reserved: int = 0


@pytest.mark.parametrize("knows_reserved", [True, False])
def test_a_captured_machine_tells_both_ways_alike(
    monkeypatch: pytest.MonkeyPatch, *, knows_reserved: bool
) -> None:
    """Bindings of older drivers know no second version, and count as used what is reserved."""
    told = json.loads((RECORDED / "h100.nvml.json").read_text())

    class Captured(Nvml):
        def nvmlDeviceGetMemoryInfo(  # noqa: N802 - NVML's name
            self, _: Gpu, version: object = None
        ) -> Memory:
            if version is None:
                return Memory(**told["memory"])
            if not knows_reserved:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return Reserved(**told["memory_v2"])

    expected = recorded("h100")
    Captured(expected).install(monkeypatch)
    _, (gpu,), _ = nvml.ask()
    assert (gpu.name, gpu.capability) == (told["name"], ".".join(map(str, told["capability"])))
    assert gpu.free_bytes == expected.devices[0].free_bytes == 85_017_493_504
    if knows_reserved:
        # vLLM printed 79.18 GiB there as the device's.
        assert gpu.memory_bytes == expected.devices[0].memory_bytes == 85_017_493_504
    else:
        assert gpu.memory_bytes == 85_520_809_984


def test_eight_gpus_and_how_they_reach_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    Nvml(recorded("h100x8"), links=18).install(monkeypatch)
    driver, gpus, topology = nvml.ask()
    assert (driver.version, driver.cuda, len(gpus)) == ("550.90.07", "12.4", 8)
    assert {gpu.nvlinks for gpu in gpus} == {18}
    assert topology[0] == ("X", *["NVLINK"] * 7)
    assert topology[7] == (*["NVLINK"] * 7, "X")

    Nvml(recorded("h100x8")).install(monkeypatch)
    _, gpus, topology = nvml.ask()
    assert gpus[0].nvlinks is None
    assert topology[1][:3] == ("SYS", "X", "SYS")


def test_what_the_driver_keeps_is_not_to_be_had() -> None:
    (gpu, *_) = recorded("h100x8").devices
    assert gpu.memory_bytes == (81559 - 550) * 2**20
    assert gpu.free_bytes == 81007 * 2**20
    assert recorded("t4").devices[0].memory_bytes == 15109 * 2**20


def test_unified_memory_is_told_from_memory_that_mig_hides() -> None:
    (spark,) = recorded("gb10").devices
    assert (spark.unified, spark.memory_bytes, spark.free_bytes) == (True, None, None)
    (cut,) = recorded("a100mig").devices
    assert (cut.unified, cut.mig, cut.memory_bytes) == (False, True, None)


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_PERMISSION"])
def test_a_driver_that_refuses_says_why(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{error}"))

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    driver, gpus, topology = nvml.ask()
    assert (gpus, topology, driver.version) == ((), (), None)
    assert driver.problem is not None and driver.problem.startswith("NVML: ")


def test_nvidia_smi_is_asked_where_nvml_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "WARNING: infoROM\n" + (RECORDED / "rtx5090.xml").read_text()
    stand_in(tmp_path, monkeypatch, document, "12.0")
    here = machine_inspect.inspect()
    assert here.gpus == ("NVIDIA GeForce RTX 5090",)
    assert (here.devices[0].capability, here.driver.told_by) == ("12.0", "nvidia-smi")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "No devices were found",
        "<nvidia_smi_log><gpu",
        "<nvidia_smi_log>&x;</nvidia_smi_log>",
    ],
)
def test_what_nvidia_smi_says_in_place_of_a_document_is_kept(said: str) -> None:
    driver, gpus = nvidia_smi.read(said)
    assert gpus == ()
    assert driver.problem == (said or "it said nothing")


def test_newer_names_of_the_versions_are_read() -> None:
    document = (RECORDED / "gb10.xml").read_text()
    document = document.replace("driver_version>", "kmd_version>")
    document = document.replace("<cuda_version>", "<cuda_umd_version>")
    document = document.replace("</cuda_version>", "</cuda_umd_version>")
    driver, _ = nvidia_smi.read(document)
    assert (driver.version, driver.cuda) == ("580.95.05", "13.0")


def test_no_gpu_is_a_machine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "NVIDIA-SMI has failed", status=9)
    here = machine_inspect.inspect()
    assert here.devices == ()
    assert here.driver.problem
    assert here.memory_bytes and here.available_bytes
    assert here.limits.open_files


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("Mems_allowed:\t00000001\nMems_allowed_list:\t0\n", 1),
        ("Mems_allowed_list:\t0-1,3\n", 3),
        ("Mems_allowed_list:\n", None),
        ("Name:\tpython\n", None),
    ],
)
def test_memory_nodes_are_those_this_process_may_have(
    text: str, nodes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status").write_text(text, encoding="utf-8")
    monkeypatch.setattr(machine_inspect, "STATUS", tmp_path / "status")
    assert machine_inspect.inspect().numa_nodes == nodes


def test_secrets_are_never_in_it() -> None:
    found = machine_inspect.relevant(
        {
            "HF_TOKEN": "hf_1", "VLLM_API_KEY": "sk-2", "NCCL_DEBUG": "INFO", "HOME": "/root",
            "CUDA_VISIBLE_DEVICES": "0,1", "HF_ENDPOINT": "https://me:pass@mirror.example/hf",
        }
    )  # fmt: skip
    assert found == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_ENDPOINT": "https://[redacted]@mirror.example/hf",
        "HF_TOKEN": "[redacted]",
        "NCCL_DEBUG": "INFO",
        "VLLM_API_KEY": "[redacted]",
    }


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        ("proc/1/cgroup", "0::/kubepods.slice/pod1\n", "kubernetes"),
        ("proc/1/cgroup", "12:cpu:/docker/0123\n", "docker"),
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/1/cgroup", "0::/init.scope\n", None),
    ],
)
def test_containers_are_known_by_what_they_leave(
    file: str, text: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert machine_inspect.kind(tmp_path) == kind


@pytest.mark.parametrize(("text", "limit"), [("8589934592\n", 8 * GIB), ("max\n", None)])
def test_a_containers_limit_of_memory(text: str, limit: int | None, tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(text)
    assert machine_inspect.memory_limit(tmp_path) == limit
