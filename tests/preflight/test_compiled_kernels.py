"""Compiled libraries against GPUs and drivers: the seed's case, suffixes, bundles not made yet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import recorded
from situations import DEEPSEEK, LANE, QWEN, check

from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment.types import Code, Library
from pytest_vllm_gates.machine.types import Gpu, Machine, NvidiaDriver
from pytest_vllm_gates.preflight.compiled_kernels import compiles_for, runs_natively
from pytest_vllm_gates.preflight.types import CheckState

FA2 = "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"


def machine(gpu: str, capability: str, driver: str, cuda: str) -> Machine:
    devices = (Gpu(0, gpu, capability=capability),)
    facts = NvidiaDriver(driver, cuda, "NVML")
    return recorded("rtx5090", gpus=(gpu,), devices=devices, driver=facts)


RTX_PRO = machine("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", "570.195.03", "12.8")


def library(*containers: tuple[Code, ...], name: str = FA2) -> Library:
    return Library(name, frozenset(frozenset(container) for container in containers))


def ptx(arch: int, version: tuple[int, int], suffix: str = "") -> Code:
    return Code(arch, ptx=True, version=version, suffix=suffix)


def test_ptx_newer_than_the_driver_fails_as_on_the_rtx_pro_6000() -> None:
    # vllm#31700: FlashAttention 2 of a CUDA 12.9 wheel, "8.0+PTX", under driver 570.
    made = replace(LANE, torch_cuda="12.9", libraries=(library((Code(80), ptx(80, (8, 8)))),))
    red = check("compiled_kernels", machine=RTX_PRO, bundle=made)
    assert red.state is CheckState.FAILS
    assert red.what == (
        f"{FA2} runs on compute capability 12.0 only by compute_80, PTX 8.8 of CUDA 12.9, but "
        "the driver compiles PTX only up to CUDA 12.8"
    )
    assert "`the provided PTX was compiled with an unsupported toolchain`" in red.cause
    assert "a driver of 575.51.03 or newer" in red.fix and "cuda-compat-12-9" in red.fix


@pytest.mark.parametrize(
    ("containers", "driver_cuda", "state"),
    [
        ([(Code(80), ptx(80, (8, 7)))], "12.8", CheckState.OK),
        ([(Code(80), ptx(80, (8, 8)))], "12.9", CheckState.OK),
        ([(Code(120), ptx(80, (8, 8)))], "12.8", CheckState.OK),
        ([(Code(120),), (Code(80), ptx(80, (8, 8)))], "12.8", CheckState.FAILS),
        # One of two that the driver can compile is enough.
        ([(ptx(80, (8, 7)), ptx(120, (8, 8)))], "12.8", CheckState.OK),
        # Kernels for other GPUs alone are not chosen here.
        ([(Code(90, suffix="a"), ptx(90, (8, 8), "a"))], "12.8", CheckState.OK),
        ([(Code(120, suffix="a"), ptx(120, (8, 8), "a"))], "12.8", CheckState.OK),
    ],
)
def test_each_container_is_judged(
    containers: list[tuple[Code, ...]], driver_cuda: str, state: CheckState
) -> None:
    here = machine("a GPU", "12.0", "570.195.03", driver_cuda)
    bundle = replace(LANE, libraries=(library(*containers),))
    assert check("compiled_kernels", machine=here, bundle=bundle).state is state


def test_library_that_is_chosen_by_the_gpu_is_named_and_does_not_fail() -> None:
    other = library((ptx(80, (8, 8)),), name="flashinfer_jit_cache/jit_cache/norm/norm.so")
    result = check("compiled_kernels", machine=RTX_PRO, bundle=replace(LANE, libraries=(other,)))
    assert result.state is CheckState.OK
    assert "these fail if they are used: flashinfer_jit_cache/" in result.what


def test_flash_attention_2_is_used_on_hopper_for_images_alone() -> None:
    bundle = replace(LANE, libraries=(library((Code(80), ptx(80, (8, 8)))),))
    hopper = machine("NVIDIA H100 80GB HBM3", "9.0", "570.195.03", "12.8")
    text, images = Model("org/text", QWEN), Model("org/vl", {**QWEN, "vision_config": {"depth": 2}})
    result = check("compiled_kernels", machine=hopper, bundle=bundle, model=text)
    assert result.state is CheckState.OK
    # vllm#25143: GLM-4.5V on an H100 died of it.
    result = check("compiled_kernels", machine=hopper, bundle=bundle, model=images)
    assert result.state is CheckState.FAILS
    pinned = replace(LANE, locations={}, libraries=(), torch_cuda="12.9")
    for model, state in ((text, CheckState.OK), (images, CheckState.FAILS)):
        result = check("compiled_kernels", machine=hopper, bundle=pinned, model=model)
        assert result.state is state


def test_flash_attention_2_is_not_used_by_latent_attention_nor_beside_another_backend() -> None:
    bundle = replace(LANE, libraries=(library((Code(80), ptx(80, (8, 8)))),))
    for changes in (
        {"model": Model("org/latent", DEEPSEEK)},
        {"serve": {"attention_backend": "FLASHINFER"}},
    ):
        result = check("compiled_kernels", machine=RTX_PRO, bundle=bundle, **changes)
        assert result.state is CheckState.OK


def test_operators_are_used_where_all_of_them_run_by_ptx() -> None:
    for containers, state in (
        ([(ptx(80, (8, 8)),)], CheckState.FAILS),
        ([(Code(120),), (ptx(80, (8, 8)),)], CheckState.OK),
    ):
        bundle = replace(LANE, libraries=(library(*containers, name="vllm/_C.abi3.so"),))
        assert check("compiled_kernels", machine=RTX_PRO, bundle=bundle).state is state


def test_compatibility_package_compiles_its_cudas_ptx() -> None:
    bundle = replace(LANE, libraries=(library((ptx(80, (8, 8)),)),))
    folder = "/usr/local/cuda-12.9/compat"
    helped = replace(RTX_PRO, compatibility=(folder,))
    for environment, state in (
        ({"LD_LIBRARY_PATH": folder}, CheckState.OK),
        ({}, CheckState.FAILS),
    ):
        result = check("compiled_kernels", machine=helped, bundle=bundle, environment=environment)
        assert result.state is state


@pytest.mark.parametrize(
    ("code", "number", "native", "compiled"),
    [
        (Code(120, suffix="a"), 121, False, False),
        (Code(120, suffix="a"), 120, True, True),
        (Code(120, suffix="f"), 121, True, True),
        (Code(120), 121, True, True),
        (Code(121), 120, False, False),
        (Code(80), 120, False, True),
        (Code(100, suffix="f"), 120, False, False),
    ],
)
def test_suffixes_limit_where_code_runs(
    code: Code, number: int, native: bool, compiled: bool
) -> None:
    assert runs_natively(code, number) is native
    assert compiles_for(code, number) is compiled


def test_bundle_that_is_not_made_is_judged_by_its_versions() -> None:
    pinned = replace(LANE, locations={}, libraries=(), torch_cuda="12.9")
    red = check("compiled_kernels", machine=RTX_PRO, bundle=pinned)
    assert red.state is CheckState.FAILS
    assert "by PTX for 8.0, and the lock's CUDA is 12.9 (not installed yet)" in red.what
    ampere = machine("NVIDIA A100", "8.0", "570.195.03", "12.8")
    assert check("compiled_kernels", machine=ampere, bundle=pinned).state is CheckState.OK
    installed = replace(LANE, libraries=())
    result = check("compiled_kernels", machine=RTX_PRO, bundle=installed)
    assert result.state is CheckState.UNKNOWN
