"""Checks for settings that are known to be needed: GB10's FP8 fallback, a reasoning parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.preflight.gpu import needs_no_gpu, visible
from pytest_vllm_gates.preflight.types import CheckResult, fails, not_applicable, ok, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.preflight.types import Situation

GB10 = "12.1"
FALLBACK = "fp8_fallback"
DISABLED = "VLLM_DISABLED_KERNELS"
KERNELS = {"blocks": "CutlassFp8BlockScaledMMKernel", "rows": "CutlassFP8ScaledMMLinearKernel"}
"""CUTLASS's FP8 kernels of vLLM 0.32 that report themselves as supported on 12.x."""
EIGHT_BITS = 8
ALL_METHODS = ("fp8", "fbgemm_fp8", "ptpc_fp8", "modelopt")


def fp8_fallback(situation: Situation) -> CheckResult:
    """FP8 on a GB10 needs the overlay's fallback, or CUTLASS's kernels left out."""
    if check_result := needs_no_gpu(situation):
        return check_result
    machine = situation.machine
    gpus = visible(situation, machine) if machine else ()
    if not any(gpu.capability == GB10 for gpu in gpus):
        return not_applicable("no GPU of compute capability 12.1")
    kernel = _kernel(situation)
    if kernel is None:
        return not_applicable("the weights are not FP8")
    if FALLBACK in (situation.repairs or ()):
        return ok(f"the lane's overlay has the repair {FALLBACK}")
    disabled = situation.environment.get(DISABLED, "")
    if kernel in (name.strip() for name in disabled.split(",")):
        return ok(f"{DISABLED}={disabled}")
    if situation.repairs is None:
        return unknown("this lane's use of CUTLASS's FP8 kernels cannot be inspected")
    return fails(
        f"FP8 weights on a GB10 ({GB10}), and vLLM would use {kernel}",
        cause="the kernel reports itself as supported, but needs more shared memory than a GB10 "
        "has; its first forward pass would fail with `Error Internal`",
        fix=f'overlay = "dgx-spark-overlay" in the lane, or {DISABLED} = "{kernel}" in its [env]',
    )


def _kernel(situation: Situation) -> str | None:
    """Return CUTLASS's kernel for the weights' kind of FP8; None for other weights."""
    config = situation.model.config or {}
    text_config = config.get("text_config")
    nested = text_config if isinstance(text_config, dict) else {}
    table = config.get("quantization_config") or nested.get("quantization_config") or {}
    method = str(table.get("quant_method") or situation.flag("quantization") or "").lower()
    if method in ALL_METHODS and "FP4" not in str(table.get("quant_algo")).upper():
        return KERNELS["blocks" if table.get("weight_block_size") else "rows"]
    if method == "compressed-tensors" and _has_eight_bit_floats(table):
        return KERNELS["rows"]
    return None


def _has_eight_bit_floats(table: Mapping[str, Any]) -> bool:
    groups = table.get("config_groups")
    formats = [
        group.get("weights")
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict)
    ]
    return any(
        isinstance(each, dict)
        and each.get("num_bits") == EIGHT_BITS
        and each.get("type") == "float"
        for each in formats
    )


def reasoning(situation: Situation) -> CheckResult:
    """A model that thinks needs a reasoning parser, or its reasoning streams as the answer."""
    if situation.thinks is None:
        return unknown("only listed families are known to think or not")
    if not situation.thinks:
        return not_applicable("the model does not think")
    parser = situation.flag("reasoning_parser")
    if parser:
        return ok(f"reasoning_parser = {parser}")
    return fails(
        "the model thinks, but no reasoning_parser is set",
        cause="a lane or checkpoint removed the family's flag: reasoning and its markers would "
        "stream as `content`, and `reasoning` would stay empty",
        fix="set reasoning_parser in [serve]; vllm-gates preflight --check parsers knows the names",
    )
