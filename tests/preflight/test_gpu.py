"""GPUs, drivers and kernels before a boot, good and bad, on recorded machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from machines import recorded
from situations import CPU, HOPPER, LANE, WHEEL, check, with_gpus

from pytest_vllm_gates.catalog.expects import Expects
from pytest_vllm_gates.environment.types import Bundle, Kernels
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine.types import NvidiaDriver
from pytest_vllm_gates.preflight.types import CheckState


def test_no_gpu() -> None:
    none = replace(
        HOPPER, gpus=(), devices=(), driver=NvidiaDriver(problem="NVML: Driver Not Loaded")
    )
    red = check("gpu", machine=none)
    assert (red.state, red.what) == (
        CheckState.FAILS,
        "no NVIDIA GPU answers: NVML: Driver Not Loaded",
    )
    assert check("gpu", machine=none, bundle=CPU).state is CheckState.NOT_APPLICABLE
    assert check("gpu", machine=none, bundle=Bundle()).state is CheckState.UNKNOWN
    assert check("gpu").what == "8 of 8: NVIDIA H100 80GB HBM3"
    assert check("gpu", machine=recorded("gb10")).what.endswith("sharing the machine's memory")


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("0,3", "2 of 8: NVIDIA H100 80GB HBM3"),
        ("GPU-00000002", "1 of 8: NVIDIA H100 80GB HBM3"),
        ("2,9,3", "1 of 8: NVIDIA H100 80GB HBM3"),
        ("MIG-1", "8 of 8: NVIDIA H100 80GB HBM3"),
        ("", "CUDA_VISIBLE_DEVICES='' hides every one of this machine's 8 GPUs"),
    ],
)
def test_visible_devices_are_counted_as_cuda_does(devices: str, message: str) -> None:
    assert check("gpu", environment={"CUDA_VISIBLE_DEVICES": devices}).what == message


@pytest.mark.parametrize(
    ("name", "cuda", "state", "message"),
    [
        ("t4", "12.8", CheckState.FAILS, "driver 470.82.01 is too old for the lane's CUDA 12.8, "
         "which requires 525.60.13 or newer"),
        ("h100x8", "13.0", CheckState.FAILS, "driver 550.90.07 is too old for the lane's CUDA "
         "13.0, which requires 580 or newer"),
        ("h100x8", "12.8", CheckState.OK, "driver 550.90.07 is of CUDA 12.8's family, from "
         "525.60.13 on (the driver of CUDA 12.8 is 570.26: an older driver of its family "
         "cannot compile this CUDA's PTX)"),
        ("rtx5090", "12.8", CheckState.OK,
         "driver 570.124.06 runs CUDA 12.8, the lane's torch is 12.8"),
        ("h100", "13.0", CheckState.OK,
         "driver 580.159.04 runs CUDA 13.0, the lane's torch is 13.0"),
        ("gb10", "13.0", CheckState.OK,
         "driver 580.95.05 runs CUDA 13.0, the lane's torch is 13.0"),
        ("gb10", "13.2", CheckState.OK, "driver 580.95.05 is of CUDA 13.2's family, from 580 on"),
        ("gb10", "14.0", CheckState.UNKNOWN, "the oldest driver for CUDA 14.0 is not in the table"),
    ],
)  # fmt: skip
def test_driver_and_cuda(name: str, cuda: str, state: CheckState, message: str) -> None:
    result = check("driver", machine=recorded(name), bundle=replace(LANE, torch_cuda=cuda))
    assert (result.state, result.what) == (state, message)


def test_compatibility_package_helps_only_data_centre_gpus() -> None:
    folder = "/usr/local/cuda-13.0/compat"
    result = {
        name: check(
            "driver",
            machine=recorded(name, compatibility=(folder,)),
            environment=environment,
        )
        for name, environment in {
            "h100x8": {"LD_LIBRARY_PATH": f"/x:{folder}/"},
            "rtx5090": {"LD_LIBRARY_PATH": folder},
            "t4": {},
        }.items()
    }
    assert result["h100x8"].what == f"driver 550.90.07 is older than 580, but {folder} helps it"
    assert result["rtx5090"].state is CheckState.FAILS
    assert "does not help: it does not support a NVIDIA GeForce RTX 5090" in result["rtx5090"].fix
    assert result["t4"].state is CheckState.FAILS
    assert "install cuda-compat-13-0" in result["t4"].fix
    by_vllm = check(
        "driver",
        machine=recorded("h100x8", compatibility=(folder,)),
        environment={"VLLM_ENABLE_CUDA_COMPATIBILITY": "1"},
    )
    assert by_vllm.state is CheckState.OK
    expected = check(
        "lane_expects",
        expects=Expects(cuda="13"),
        machine=recorded("h100x8", compatibility=(folder,)),
        environment={"LD_LIBRARY_PATH": folder},
    )
    assert expected.state is CheckState.OK


def test_driver_without_a_version_is_unknown() -> None:
    assert (
        check("driver", machine=replace(HOPPER, driver=NvidiaDriver())).state is CheckState.UNKNOWN
    )
    assert check("driver", bundle=replace(LANE, torch_cuda=None)).what == (
        "the lane's CUDA is not known"
    )


@pytest.mark.parametrize(
    ("name", "kernels", "state", "message"),
    [
        ("h100x8", WHEEL, CheckState.OK, "torch for 9.0 as compiled, vLLM for 9.0 as compiled"),
        ("gb10", WHEEL, CheckState.OK, "torch for 12.1 as sm_120, vLLM for 12.1 as sm_120"),
        ("rtx5090", Kernels((80, 90), (90,)), CheckState.OK,
         "torch for 12.0 by PTX of 90, compiled at the first start, "
         "vLLM for 12.0 by PTX of 90, compiled at the first start"),
        ("rtx5090", Kernels((80, 90)), CheckState.FAILS,
         "the lane's torch has no kernels for the NVIDIA GeForce RTX 5090 (compute capability "
         "12.0, sm_120): it was compiled for 8.0, 9.0"),
        ("t4", Kernels((80, 90), (80,)), CheckState.FAILS,
         "the lane's torch has no kernels for the Tesla T4 (compute capability 7.5, sm_75): it "
         "was compiled for 8.0, 9.0"),
        ("rtx5090", Kernels((80, 90), None), CheckState.OK,
         "torch for 12.0 by PTX, if it has any, vLLM for 12.0 by PTX, if it has any"),
        ("rtx5090", None, CheckState.UNKNOWN,
         "the GPUs that this lane's torch and vLLM were compiled for are not known"),
    ],
)  # fmt: skip
def test_kernels_for_the_gpu(name: str, kernels: Kernels, state: CheckState, message: str) -> None:
    bundle = replace(LANE, torch_kernels=kernels, vllm_kernels=kernels)
    result = check("compute_capability", machine=recorded(name), bundle=bundle)
    assert (result.state, result.what) == (state, message)


def test_vllms_own_kernels_count_beside_torchs() -> None:
    bundle = replace(LANE, vllm_kernels=Kernels((80, 90)))
    result = check("compute_capability", machine=recorded("gb10"), bundle=bundle)
    assert result.what.startswith("the lane's vLLM has no kernels for the NVIDIA GB10")
    assert "TORCH_CUDA_ARCH_LIST=12.1" in result.fix
    silent = with_gpus(HOPPER, capability=None)
    assert check("compute_capability", machine=silent).state is CheckState.UNKNOWN


def test_bfloat16_needs_a_capable_gpu() -> None:
    serve = {"dtype": "bfloat16"}
    red = check("dtype", machine=recorded("t4"), serve=serve)
    assert red.what == (
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0; the Tesla T4 "
        "has 7.5"
    )
    assert 'dtype = "half"' in red.fix
    assert check("dtype", serve=serve).state is CheckState.OK
    assert check("dtype", machine=recorded("t4")).state is CheckState.NOT_APPLICABLE
    silent = with_gpus(HOPPER, capability=None)
    assert check("dtype", machine=silent, serve=serve).state is CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("expects", "state", "message"),
    [
        ({}, CheckState.NOT_APPLICABLE, "the lane's file has no [expects] for the machine"),
        ({"cuda": "13", "driver": "580", "gpu": "h100"}, CheckState.OK,
         "the machine is as the lane expects"),
        ({"gpu": "H200", "driver": "590"}, CheckState.FAILS,
         "the lane cuda expects driver 590, but this machine has 580.95.05; gpu H200, but this "
         "machine has NVIDIA H100 80GB HBM3"),
    ],
)  # fmt: skip
def test_machine_is_compared_with_lane_expects(
    expects: dict[str, str], state: CheckState, message: str
) -> None:
    result = check("lane_expects", expects=Expects(**expects))
    assert (result.state, result.what) == (state, message)


def test_unknown_machine_facts_leave_lane_expects_unknown() -> None:
    silent = replace(HOPPER, driver=NvidiaDriver())
    result = check("lane_expects", machine=silent, expects=Expects(cuda="13"))
    assert result.state is CheckState.UNKNOWN


def test_lane_can_waive_a_failed_check_with_a_reason() -> None:
    arguments: dict[str, Any] = {"expects": Expects(gpu="H200")}
    assert check("lane_expects", **arguments).state is CheckState.FAILS
    result = check("lane_expects", waived={"lane_expects": "a loan"}, **arguments)
    assert result.state is CheckState.NOT_APPLICABLE
    assert result.what.startswith("waived by the lane (a loan): the lane cuda expects gpu H200")
    with pytest.raises(UserError, match="unknown check to waive 'lane_expect'; did you mean"):
        check("lane_expects", waived={"lane_expect": "a slip"}, **arguments)


def test_driver_without_cuda_is_compared_by_family() -> None:
    result = check(
        "driver", machine=replace(HOPPER, driver=NvidiaDriver("580.95.05", None, "NVML"))
    )
    assert (result.state, result.what) == (
        CheckState.OK,
        "driver 580.95.05 is of CUDA 13.0's family, from 580 on",
    )
