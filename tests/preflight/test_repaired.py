"""A GB10's FP8 fallback and a thinking model's parser, each missing and each in place."""

from __future__ import annotations

from typing import Any

import pytest
from machines import recorded
from situations import CPU, DEEPSEEK, QWEN, check

from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.preflight.types import CheckState

SPARK = recorded("gb10")
FP8 = Model("org/fp8", DEEPSEEK)
ROWS = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}


def fallback(**changes: Any) -> Any:
    return check("fp8_fallback", **({"machine": SPARK, "model": FP8} | changes))


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"repairs": ()}, CheckState.FAILS),
        ({"repairs": ("other",)}, CheckState.FAILS),
        ({"repairs": None}, CheckState.UNKNOWN),
        ({"repairs": ("fp8_fallback",)}, CheckState.OK),
        ({"repairs": (), "environment": {
            "VLLM_DISABLED_KERNELS": "X,CutlassFp8BlockScaledMMKernel"}}, CheckState.OK),
        ({"repairs": (), "environment": {"VLLM_DISABLED_KERNELS": "X"}}, CheckState.FAILS),
        ({"repairs": (), "machine": recorded("rtx5090")}, CheckState.NOT_APPLICABLE),
        ({"repairs": (), "bundle": CPU}, CheckState.NOT_APPLICABLE),
        ({"repairs": (), "model": Model("org/16", QWEN)}, CheckState.NOT_APPLICABLE),
        ({"repairs": (), "model": Model("org/16", QWEN), "serve": {"quantization": "fp8"}},
         CheckState.FAILS),
        ({"repairs": (), "model": Model("org/8", {**QWEN, "quantization_config": {
            "quant_method": "compressed-tensors", **ROWS}})}, CheckState.FAILS),
        ({"repairs": (), "model": Model("org/4", {**QWEN, "quantization_config": {
            "quant_method": "modelopt", "quant_algo": "NVFP4"}})}, CheckState.NOT_APPLICABLE),
    ],
)  # fmt: skip
def test_fp8_on_a_spark_needs_the_fallback(changes: dict[str, Any], state: CheckState) -> None:
    assert fallback(**changes).state is state


def test_missing_fallback_names_the_kernel_and_the_overlay() -> None:
    red = fallback(repairs=())
    assert "CutlassFp8BlockScaledMMKernel" in red.what
    assert 'overlay = "dgx-spark-overlay"' in red.fix
    rows = fallback(repairs=(), model=Model("org/16", QWEN), serve={"quantization": "fp8"})
    assert "CutlassFP8ScaledMMLinearKernel" in rows.what


@pytest.mark.parametrize(
    ("thinks", "serve", "state"),
    [
        (True, {}, CheckState.FAILS),
        (True, {"reasoning_parser": ""}, CheckState.FAILS),
        (True, {"reasoning_parser": "qwen3"}, CheckState.OK),
        (False, {}, CheckState.NOT_APPLICABLE),
        (None, {}, CheckState.UNKNOWN),
    ],
)
def test_model_that_thinks_needs_a_reasoning_parser(
    thinks: bool | None, serve: dict[str, str], state: CheckState
) -> None:
    assert check("reasoning", thinks=thinks, serve=serve).state is state
