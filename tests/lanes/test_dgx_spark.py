"""The lane of a DGX Spark: its preflight checks and its overlay."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from machines import recorded

from lanes.test_overlay import OVERLAY as CPU_OVERLAY, module, run
from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints.resolve import resolve
from pytest_vllm_gates.environment import environment, overlay
from pytest_vllm_gates.machine.types import NvidiaDriver
from pytest_vllm_gates.preflight import checks as preflight_checks, gather
from pytest_vllm_gates.preflight.types import Check, CheckState, Node

NOWHERE = Path("/nowhere")
LANE = lanes.load("dgx-spark", NOWHERE)
OVERLAY = lanes.SHIPPED / "dgx-spark-overlay"
GIB = 2**30
SPARK = recorded("gb10", interfaces=("enP7s7", "enp1s0f0np0", "enp1s0f1np1", "lo"))
TORCH = """
bfloat16 = float32 = uint8 = float8_e4m3fn = "a type"
made = []
class Tensor:
    def __init__(self, shape): self.shape = shape
    def t(self): return Tensor(self.shape[::-1])
    def view(self, dtype): return self
def zeros(shape, dtype, device): made.append(shape); return Tensor(shape)
ones = zeros
class cuda:
    synchronize = staticmethod(lambda: None)
"""
KERNELS = """
class ops:
    calls = []
    refuses = ""
    @classmethod
    def cutlass_scaled_mm(cls, a, b, out_dtype, scale_a, scale_b):
        cls.calls.append((a.shape, b.shape, scale_a.shape, scale_b.shape))
        if cls.refuses and a.shape[0] > 1:
            raise RuntimeError(cls.refuses + "\\nwhere it was")
class CutlassFp8BlockScaledMMKernel:
    @classmethod
    def is_supported(cls, compute_capability=None):
        return (compute_capability or 0) >= 90, "too old"
class CutlassFP8ScaledMMLinearKernel(CutlassFp8BlockScaledMMKernel):
    @classmethod
    def is_supported(cls, compute_capability=None):
        return (compute_capability or 0) >= 89, "too old"
"""


def checks(machine: Any = SPARK, **arguments: Any) -> dict[str, Check]:
    """Return preflight's results for the lane on a machine, as in the gates' run."""
    family = families.load("qwen3.5", NOWHERE)
    situation = gather.gather(
        family,
        resolve(family, "miniature"),
        LANE,
        environment.at_hand(LANE, cache=NOWHERE),
        machine,
        **arguments,
    )
    return {check.name: check for check in preflight_checks.run(situation)}


def test_lane_uses_the_cuda_lock_with_gb10_settings() -> None:
    assert LANE.lock_path == lanes.SHIPPED / "cuda.txt"
    assert LANE.overlay_path == OVERLAY
    assert LANE.env["RAY_memory_usage_threshold"] == "0.99"
    assert LANE.env["RAY_memory_monitor_refresh_ms"] == "0"
    (repair,) = overlay.repairs(OVERLAY)
    assert repair.name == "fp8_fallback"
    # Settings that differ from node to node must not be in a lane.
    assert not {"VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "VLLM_NCCL_SO_PATH"} & {*LANE.env}


def test_recorded_gb10_passes_preflight() -> None:
    results = checks()
    assert results["gpu"].what == "1 of 1: NVIDIA GB10, sharing the machine's memory"
    assert results["driver"].state is results["lane_expects"].state is CheckState.OK
    assert "580.95.05 runs CUDA 13.0, the lane's torch is 13.0" in results["driver"].what
    assert not preflight_checks.failed(results.values())


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (recorded("h100x8"), "expects driver 580, but this machine has 550.90.07"),
        (recorded("rtx5090"), "gpu GB10, but this machine has NVIDIA GeForce RTX 5090"),
        (
            recorded("gb10", driver=NvidiaDriver("570.1", "12.8", "NVML")),
            "expects driver 580, but this machine has 570.1; cuda 13.0",
        ),
    ],
)
def test_other_machine_fails_lane_expects(machine: Any, message: str) -> None:
    assert message in checks(machine)["lane_expects"].what


def test_utilization_is_a_share_of_the_free_memory() -> None:
    assert checks()["free_memory"].state is CheckState.OK
    short = checks(recorded("gb10", available_bytes=90 * GIB))["free_memory"]
    assert short.state is CheckState.FAILS
    assert "(90.00 GiB of 128.00 GiB of the memory it shares with the machine)" in short.what
    assert "(0.85," in short.what


def node(name: str, vllm: str, address: str) -> Node:
    machine = {
        "driver": {"version": "580.95.05"},
        "environment": {"VLLM_HOST_IP": address},
    }
    versions = {"vllm": vllm, "torch": "2.13.0", "nvidia-nccl-cu13": "2.29.7"}
    return Node(name, machine, versions)


def test_two_sparks_need_equal_versions_and_own_addresses() -> None:
    first, second = "192.168.100.10", "192.168.100.11"
    equal = checks(nodes=[node("head", "0.32.0", first), node("worker", "0.32.0", second)])
    assert equal["nodes"].state is CheckState.OK
    different = checks(nodes=[node("head", "0.32.0", first), node("worker", "0.31.0", second)])
    assert different["nodes"].what == "the nodes differ: vllm: 0.32.0 on head, 0.31.0 on worker"
    copied = checks(nodes=[node("head", "0.32.0", first), node("worker", "0.32.0", first)])
    assert copied["nodes"].state is CheckState.FAILS


def test_interfaces_of_two_sparks_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("head", "0.32.0", "a"), node("worker", "0.32.0", "b")]
    for name in ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "VLLM_NCCL_SO_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert checks()["network"].state is CheckState.NOT_APPLICABLE
    assert checks(nodes=nodes)["network"].state is CheckState.UNKNOWN
    monkeypatch.setenv("VLLM_HOST_IP", "127.0.0.1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "enp1s0f1np1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "enp1s0f1np1")
    assert checks(nodes=nodes)["network"].state is CheckState.OK
    monkeypatch.setenv("VLLM_HOST_IP", "192.0.2.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "enp1s0f9np9")
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/nowhere/libnccl.so.2")
    check = checks(nodes=nodes)["network"]
    assert check.what == (
        "VLLM_HOST_IP=192.0.2.1 is not an address of this machine; "
        "VLLM_NCCL_SO_PATH=/nowhere/libnccl.so.2 does not exist; "
        "GLOO_SOCKET_IFNAME=enp1s0f9np9: this machine has no interface enp1s0f9np9"
    )


def test_overlays_share_the_after_import_module() -> None:
    spark_module, cpu_module = (
        path.read_text()
        for path in (
            OVERLAY / "gb10_repairs/_after_import.py",
            CPU_OVERLAY / "vllm_gates_repairs/_after_import.py",
        )
    )
    assert spark_module == cpu_module


ASK = """
from vllm.model_executor.kernels.linear.scaled_mm import cutlass
cutlass.ops.refuses = {refuses!r}
for name in ("CutlassFp8BlockScaledMMKernel", "CutlassFP8ScaledMMLinearKernel"):
    for capability in (80, 90, 120, 121, 121):
        supported, reason = getattr(cutlass, name).is_supported(capability)
        print(capability, supported, "" if supported else reason, len(cutlass.ops.calls))
print(cutlass.ops.calls)
"""


def probed(tmp_path: Path, refuses: str, **env: str) -> list[str]:
    package = Path("vllm/model_executor/kernels/linear/scaled_mm")
    for folder in (package, *package.parents):
        if folder.name:
            module(tmp_path, str(folder / "__init__.py"), "")
    module(tmp_path, str(package / "cutlass.py"), KERNELS)
    module(tmp_path, "torch.py", TORCH)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        return run("python", ASK.format(refuses=refuses), OVERLAY, tmp_path).stdout.splitlines()


def test_refusing_kernel_is_unsupported_only_on_a_gb10(tmp_path: Path) -> None:
    reason = "does not run on this GPU: Error Internal"
    *lines, shapes = probed(tmp_path, "Error Internal")
    assert lines == [
        "80 False too old 0", "90 True  0", f"120 False {reason} 2", f"121 False {reason} 2",
        f"121 False {reason} 2",
        "80 False too old 2", "90 True  2", f"120 False {reason} 4", f"121 False {reason} 4",
        f"121 False {reason} 4",
    ]  # fmt: skip
    (one_row, many_rows, per_tensor, _) = ast.literal_eval(shapes)
    assert one_row == ((1, 5120), (5120, 16384), (1, 40), (40, 128))
    assert many_rows == ((1024, 5120), (5120, 16384), (1024, 40), (40, 128))
    assert per_tensor == ((1, 5120), (5120, 16384), (1,), (1,))


def test_working_kernel_is_probed_once_and_used(tmp_path: Path) -> None:
    *lines, _ = probed(tmp_path, "")
    assert lines[2:5] == ["120 True  2", "121 True  2", "121 True  2"]


def test_the_repair_can_be_left_out(tmp_path: Path) -> None:
    *lines, shapes = probed(tmp_path, "Error", VLLM_GATES_WITHOUT_REPAIRS="fp8_fallback")
    assert [line.split()[1] for line in lines[2:5]] == ["True"] * 3
    assert shapes == "[]"


@pytest.mark.real
def test_guarded_kernels_exist_in_the_real_vllm() -> None:
    """The vLLM of the lane's version has their names and the operator's arguments."""
    cpu = environment.prepare(
        lanes.load("cpu", NOWHERE), cache=files.default_cache(), progress=print
    )
    assert cpu.python is not None and cpu.vllm == "0.32.0"
    code = """
import inspect, sys
sys.path.append({overlay!r})
from gb10_repairs import fp8_fallback
fp8_fallback.arm()
from vllm.model_executor.kernels.linear.scaled_mm import cutlass
for name in ("CutlassFp8BlockScaledMMKernel", "CutlassFP8ScaledMMLinearKernel"):
    kernel = getattr(cutlass, name)
    own = kernel.is_supported.__wrapped__
    print(own.__module__ == cutlass.__name__, kernel.is_supported(121)[0])
print(*list(inspect.signature(cutlass.ops.cutlass_scaled_mm).parameters)[:5])
"""
    code = code.format(overlay=str(OVERLAY))
    assert run(cpu.python, code, CPU_OVERLAY).stdout.splitlines() == [
        "True False", "True False", "a b scale_a scale_b out_dtype",
    ]  # fmt: skip
