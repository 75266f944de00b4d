"""The lane of a DGX Spark: what preflight says of it there, and its overlay."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from machines import recorded

from lanes.test_overlay import OVERLAY as CPU_OVERLAY, module, run
from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import resolve as checkpoints_resolve
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
    asked = []
    refuses = ""
    @classmethod
    def cutlass_scaled_mm(cls, a, b, out_dtype, scale_a, scale_b):
        cls.asked.append((a.shape, b.shape, scale_a.shape, scale_b.shape))
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


def checks(machine: Any = SPARK, **given: Any) -> dict[str, Check]:
    """Return what preflight says of the lane on a machine, as the gates ask it."""
    family = families.load("qwen3.5", NOWHERE)
    situation = gather.gather(
        family,
        checkpoints_resolve.resolve(family, "miniature"),
        LANE,
        environment.at_hand(LANE, cache=NOWHERE),
        machine,
        **given,
    )
    return {check.name: check for check in preflight_checks.run(situation)}


def test_the_lane_is_the_cuda_lanes_lock_with_what_a_gb10_needs() -> None:
    assert LANE.lock_path == lanes.SHIPPED / "cuda.txt"
    assert LANE.overlay_path == OVERLAY
    assert LANE.env["RAY_memory_usage_threshold"] == "0.99"
    assert LANE.env["RAY_memory_monitor_refresh_ms"] == "0"
    (repair,) = overlay.repairs(OVERLAY)
    assert repair.name == "fp8_fallback"
    # What differs from node to node is no lane's to say.
    assert not {"VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "VLLM_NCCL_SO_PATH"} & {*LANE.env}


def test_a_recorded_gb10_is_what_the_lane_expects() -> None:
    found = checks()
    assert found["gpu"].what == "1 of 1: NVIDIA GB10, sharing the machine's memory"
    assert found["driver"].state is found["lane_expects"].state is CheckState.OK
    assert "580.95.05 runs CUDA 13.0, the lane's torch is 13.0" in found["driver"].what
    assert not preflight_checks.failed(found.values())


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (recorded("h100x8"), "expects driver 580, and this machine has 550.90.07"),
        (recorded("rtx5090"), "gpu GB10, and this machine has NVIDIA GeForce RTX 5090"),
        (
            recorded("gb10", driver=NvidiaDriver("570.1", "12.8", "NVML")),
            "expects driver 580, and this machine has 570.1; cuda 13.0",
        ),
    ],
)
def test_another_machine_is_told(machine: Any, said: str) -> None:
    assert said in checks(machine)["lane_expects"].what


def test_its_share_is_of_the_memory_that_the_machine_has_free() -> None:
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


def test_two_sparks_need_the_same_versions_and_addresses_of_their_own() -> None:
    text, two = "192.168.100.10", "192.168.100.11"
    alike = checks(nodes=[node("head", "0.32.0", text), node("worker", "0.32.0", two)])
    assert alike["nodes"].state is CheckState.OK
    other = checks(nodes=[node("head", "0.32.0", text), node("worker", "0.31.0", two)])
    assert other["nodes"].what == "the nodes differ: vllm: 0.32.0 on head, 0.31.0 on worker"
    copied = checks(nodes=[node("head", "0.32.0", text), node("worker", "0.32.0", text)])
    assert copied["nodes"].state is CheckState.FAILS


def test_two_sparks_are_held_to_their_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [node("head", "0.32.0", "a"), node("worker", "0.32.0", "b")]
    for name in ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "VLLM_NCCL_SO_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert checks()["network"].state is CheckState.NOT_APPLICABLE
    assert checks(nodes=both)["network"].state is CheckState.UNKNOWN
    monkeypatch.setenv("VLLM_HOST_IP", "127.0.0.1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "enp1s0f1np1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "enp1s0f1np1")
    assert checks(nodes=both)["network"].state is CheckState.OK
    monkeypatch.setenv("VLLM_HOST_IP", "192.0.2.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "enp1s0f9np9")
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/nowhere/libnccl.so.2")
    check = checks(nodes=both)["network"]
    assert check.what == (
        "VLLM_HOST_IP=192.0.2.1 is no address of this machine; "
        "VLLM_NCCL_SO_PATH=/nowhere/libnccl.so.2 is not there; "
        "GLOO_SOCKET_IFNAME=enp1s0f9np9: this machine has no interface enp1s0f9np9"
    )


def test_the_overlays_share_what_follows_an_import() -> None:
    own, other = (
        path.read_text()
        for path in (
            OVERLAY / "gb10_repairs/_after_import.py",
            CPU_OVERLAY / "vllm_gates_repairs/_after_import.py",
        )
    )
    assert own == other


ASK = """
from vllm.model_executor.kernels.linear.scaled_mm import cutlass
cutlass.ops.refuses = {refuses!r}
for name in ("CutlassFp8BlockScaledMMKernel", "CutlassFP8ScaledMMLinearKernel"):
    for capability in (80, 90, 120, 121, 121):
        supported, reason = getattr(cutlass, name).is_supported(capability)
        print(capability, supported, "" if supported else reason, len(cutlass.ops.asked))
print(cutlass.ops.asked)
"""


def asked(tmp_path: Path, refuses: str, **env: str) -> list[str]:
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


def test_a_kernel_that_refuses_is_no_longer_supported_on_a_gb10_alone(tmp_path: Path) -> None:
    said = "does not run on this GPU: Error Internal"
    *told, shapes = asked(tmp_path, "Error Internal")
    assert told == [
        "80 False too old 0", "90 True  0", f"120 False {said} 2", f"121 False {said} 2",
        f"121 False {said} 2",
        "80 False too old 2", "90 True  2", f"120 False {said} 4", f"121 False {said} 4",
        f"121 False {said} 4",
    ]  # fmt: skip
    (entry, many, whole, _) = ast.literal_eval(shapes)
    assert entry == ((1, 5120), (5120, 16384), (1, 40), (40, 128))
    assert many == ((1024, 5120), (5120, 16384), (1024, 40), (40, 128))
    assert whole == ((1, 5120), (5120, 16384), (1,), (1,))


def test_a_kernel_that_runs_is_asked_once_and_used(tmp_path: Path) -> None:
    *told, _ = asked(tmp_path, "")
    assert told[2:5] == ["120 True  2", "121 True  2", "121 True  2"]


def test_the_repair_can_be_left_out(tmp_path: Path) -> None:
    *told, shapes = asked(tmp_path, "Error", VLLM_GATES_WITHOUT_REPAIRS="fp8_fallback")
    assert [line.split()[1] for line in told[2:5]] == ["True"] * 3
    assert shapes == "[]"


@pytest.mark.real
def test_the_kernels_that_are_guarded_are_those_of_the_real_vllm() -> None:
    """Their names and the operator's arguments hold in the vLLM of the lane's version."""
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
