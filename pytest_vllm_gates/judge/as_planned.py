"""Is what a server reports of its memory what the plan says?"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.types import GIB, Serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.memory_plan.types import MemoryPlan
    from pytest_vllm_gates.server.startup_check import Startup

MARGIN = 0.05
ROUNDED_GIB = 0.005
"""Half of the last digit that vLLM prints."""
SEGMENT_GIB = 20 * 2**20 / GIB
"""What torch's allocator may take at once beyond what was asked for (`kLargeBuffer` of
c10/cuda/CUDACachingAllocator.h): vLLM prints what the device gave, not what the weights fill."""


def serving(flags: Mapping[str, Any], version: str | None, device: str) -> Serving:
    """Return the flags of a server as the plan takes them; those it does not know are left out."""
    whole = {field.name: "int" in str(field.type) for field in fields(Serving)}
    given = {
        name: value
        for name, value in flags.items()
        if name in whole and (isinstance(value, int) or not whole[name])
    }
    speculative = flags.get("speculative_config")
    if isinstance(speculative, dict) and "num_speculative_tokens" in speculative:
        given["num_speculative_tokens"] = speculative["num_speculative_tokens"]
    if version:
        given["vllm_version"] = version
    return Serving(**given, device=device)


def differences(plan: MemoryPlan, told: Startup) -> Iterator[str]:
    """Yield one sentence for every figure that is more than 5 % beside the plan.

    The memory a log tells is rounded, so that the plan is an interval.
    """
    tokens, concurrency = (told.figures.get(name) for name in ("kv_tokens", "kv_concurrency"))
    if plan.low and plan.high and tokens is not None:
        yield from _beside("tokens of KV cache", tokens, plan.low.tokens, plan.high.tokens)
    if plan.low and plan.high and concurrency is not None:
        low, high = plan.low.concurrency, plan.high.concurrency
        yield from _beside("requests of the longest length at once", concurrency, low, high)
    weights = told.figures.get("weights_gib")
    if plan.weights and weights is not None:
        planned = plan.weights.bytes_per_device / GIB
        slack = (ROUNDED_GIB, ROUNDED_GIB + SEGMENT_GIB)
        yield from _beside("GiB of weights on a device", weights, planned, planned, slack)


def _beside(
    what: str, told: float, low: float, high: float, slack: tuple[float, float] = (0, 0)
) -> Iterator[str]:
    below, above = slack
    if not low * (1 - MARGIN) - below <= told <= high * (1 + MARGIN) + above:
        between = f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"
        yield f"{what}: planned {between}, and vLLM reports {told:,.6g}"
