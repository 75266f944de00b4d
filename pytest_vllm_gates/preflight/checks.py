"""Preflight: named checks of facts that are known before a boot, with the boot's own messages.

A check is a function of the `Situation`. If the facts decide, it is ok or fails, with the cause and
the next step; otherwise it is unknown. It never guesses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.preflight import (
    compiled_kernels,
    flags,
    gpu,
    host,
    links,
    memory,
    model,
    parallel,
    repaired,
    versions,
)
from pytest_vllm_gates.preflight.types import Check, CheckState, Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_vllm_gates.preflight.types import CheckResult

# In the order in which a boot would run into them.
CHECKS: Mapping[str, Callable[[Situation], CheckResult]] = {
    "flags": flags.flags,
    "versions": versions.versions,
    "nodes": versions.nodes,
    "gpu": gpu.answers,
    "driver": gpu.driver,
    "compute_capability": gpu.compute_capability,
    "compiled_kernels": compiled_kernels.compiled_kernels,
    "dtype": gpu.dtype,
    "lane_expects": gpu.lane_expects,
    "checkpoint": model.checkpoint,
    "architecture": model.architecture,
    "model_type": model.model_type,
    "parsers": model.parsers,
    "reasoning": repaired.reasoning,
    "max_model_len": model.max_model_len,
    "quantization": model.quantization,
    "fp8_fallback": repaired.fp8_fallback,
    "gpu_count": parallel.gpu_count,
    "cpu_ranks": parallel.cpu_ranks,
    "attention_heads": parallel.attention_heads,
    "kv_heads": parallel.kv_heads,
    "quantization_blocks": parallel.quantization_blocks,
    "network": host.network,
    "mtu": links.mtu,
    "nccl": links.nccl,
    "ray_memory": links.ray_memory,
    "free_memory": memory.free_memory,
    "kv_cache": memory.kv_cache,
    "shared_memory": host.shared_memory,
    "open_files": host.open_files,
}
# Checks that do not apply to a renderer, which has neither weights nor an accelerator.
FOR_WEIGHTS = frozenset(
    {
        "gpu", "driver", "compute_capability", "compiled_kernels", "dtype", "lane_expects",
        "quantization", "gpu_count",
        "cpu_ranks", "attention_heads", "kv_heads", "quantization_blocks", "network",
        "mtu", "nccl", "ray_memory", "fp8_fallback",
        "free_memory", "kv_cache", "shared_memory", "open_files",
    }
)  # fmt: skip


def run(situation: Situation, names: Iterable[str] = CHECKS) -> tuple[Check, ...]:
    """Return the result of each check, in the given order.

    Raises `UserError` if the lane waives an unknown check.
    """
    reasons = {
        choose("check to waive", name, CHECKS): reason for name, reason in situation.waived.items()
    }
    return tuple(_apply_waiver(_run_check(name, situation), reasons) for name in names)


def _apply_waiver(check: Check, reasons: Mapping[str, str]) -> Check:
    """Return the check; if it fails and the lane waives it, it is not applicable."""
    if check.state is not CheckState.FAILS or check.name not in reasons:
        return check
    message = f"waived by the lane ({reasons[check.name]}): {check.what}"
    return Check(check.name, CheckState.NOT_APPLICABLE, message)


def _run_check(name: str, situation: Situation) -> Check:
    if situation.renderer and name in FOR_WEIGHTS:
        return Check(name, CheckState.NOT_APPLICABLE, "a renderer needs no accelerator")
    try:
        check_result = CHECKS[name](situation)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        # A config may contain anything; an error in this check must not stop a boot.
        message = f"the check could not read its input: {type(error).__name__}: {error}"
        return Check(name, CheckState.UNKNOWN, message)
    return Check(name, check_result.state, check_result.what, check_result.cause, check_result.fix)


def failed(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the checks that fail."""
    return tuple(check for check in checks if check.state is CheckState.FAILS)


def only_memory_fails(checks: Iterable[Check]) -> bool:
    """Return whether only the check of free memory fails: the memory may become free."""
    return [check.name for check in failed(checks)] == ["free_memory"]


def explain(checks: Iterable[Check]) -> str:
    """Return the failed checks in readable form, one after the other."""
    return "\n\n".join(check.explain() for check in failed(checks))
