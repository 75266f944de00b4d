"""The capacity of a cache's memory: vLLM's figures, the limits, and deviations of a server.

The limits are found by search.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import floor
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan import kv_cache, types as versions
from pytest_vllm_gates.memory_plan.types import GIB, HALF_A_DIGIT, CacheKind, Serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.memory_plan.kv_cache import Bucket, Demand
    from pytest_vllm_gates.memory_plan.types import MemoryPlan, Pool, Version
    from pytest_vllm_gates.server.startup_check import Startup

LONG = 2**27
"""A context longer than any model's; the search for the longest context starts below it."""


@dataclass(frozen=True)
class Layout:
    """vLLM's layout of the cache, which gives the capacity of a memory."""

    buckets: tuple[Bucket, ...]
    demand: Demand
    version: Version
    parts: Sequence[range] | None

    def pool(self, available: int) -> Pool:
        """Return the pool that fits in `available` bytes."""
        return kv_cache.pool(self.buckets, available, self.demand, self.version, self.parts)

    def needed(self, context: int) -> int:
        """Return the bytes that vLLM requires to serve `context` tokens."""
        demand = replace(self.demand, context=context)
        return kv_cache.needed_bytes(self.buckets, demand, self.version, self.parts)


def fitted(plan: MemoryPlan, available: int, layout: Layout) -> MemoryPlan:
    """Return the plan with the capacity of `available` bytes."""
    pool = layout.pool(available)
    needed = layout.needed(layout.demand.context)
    fits = needed <= available
    notes = list(plan.notes)
    usable = pool.concurrency * (1 - plan.headroom)
    if fits and usable < 1:
        notes.append(
            f"it starts, but one request of {layout.demand.context:,} tokens leaves less than "
            f"{plan.headroom:.0%} of the cache free"
        )
    longest = largest_context(available, layout)
    notes += meanings(layout)
    return replace(
        plan,
        pool=pool,
        low=layout.pool(available - HALF_A_DIGIT),
        high=layout.pool(available + HALF_A_DIGIT),
        needed_bytes=needed,
        fits=fits,
        largest_context=longest,
        largest_concurrency=floor(usable) if fits else 0,
        notes=tuple(notes),
    )


def largest_context(available: int, layout: Layout) -> int:
    """Return the longest context that vLLM would start with; 0 if not even one token fits."""
    fits, too_long = 0, LONG
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if layout.needed(middle) <= available:
            fits = middle
        else:
            too_long = middle
    return fits


def token_cost(
    buckets: Sequence[Bucket], demand: Demand, parts: Sequence[range] | None = None
) -> int:
    """Return the bytes that one more token costs on a device, in a pipeline on the fullest one."""
    growing = sum(
        1 / (bucket.page.block_size * demand.ranks)
        for bucket in buckets
        if bucket.page.kind in kv_cache.GROWING
    )
    return round(growing * _block(buckets, parts))


def _block(buckets: Sequence[Bucket], parts: Sequence[range] | None) -> int:
    if not parts:
        return kv_cache.bytes_per_block(buckets)
    return max(kv_cache.bytes_per_block(buckets, stage) for stage in parts)


def state_cost(
    buckets: Sequence[Bucket], demand: Demand, parts: Sequence[range] | None = None
) -> int:
    """Return the bytes of a sequence's states on one device, padding included."""
    blocks = demand.states * sum(bucket.page.kind is CacheKind.STATE for bucket in buckets)
    return blocks * _block(buckets, parts)


def meanings(layout: Layout) -> list[str]:
    """Return notes on printed figures whose names are misleading."""
    if len(layout.buckets) == 1 and layout.buckets[0].page.kind in kv_cache.GROWING:
        return []
    if layout.version < versions.TOKENS_ARE_WHOLE_REQUESTS:
        if len(layout.buckets) == 1:
            return []
        return [
            f"this vLLM prints the tokens of one of {len(layout.buckets)} groups as its KV cache "
            "size; the printed concurrency counts the whole pool"
        ]
    return [
        "this vLLM prints concurrency times context as its KV cache size; because some layers do "
        "not grow with the context, the figure changes with --max-model-len; do not divide memory "
        "by it to get the cost of a token"
    ]


def gibibytes(count: int) -> str:
    """Return bytes as vLLM prints them."""
    return f"{count / GIB:.2f} GiB"


MARGIN = 0.05
ROUNDED_GIB = 0.005
"""Half of the last digit that vLLM prints."""
SEGMENT_GIB = 20 * 2**20 / GIB
"""The memory that torch's allocator may reserve beyond a request (`kLargeBuffer` of
c10/cuda/CUDACachingAllocator.h): vLLM prints the reserved memory, not the size of the weights."""


def serving(flags: Mapping[str, Any], version: str | None, device: str) -> Serving:
    """Return the flags of a server that the plan knows; unknown flags are left out."""
    is_integer = {field.name: "int" in str(field.type) for field in fields(Serving)}
    known_flags = {
        name: value
        for name, value in flags.items()
        if name in is_integer and (isinstance(value, int) or not is_integer[name])
    }
    speculative = flags.get("speculative_config")
    if isinstance(speculative, dict) and "num_speculative_tokens" in speculative:
        known_flags["num_speculative_tokens"] = speculative["num_speculative_tokens"]
    if version:
        known_flags["vllm_version"] = version
    return Serving(**known_flags, device=device)


def started(flags: Mapping[str, Any], version: str | None, startup: Startup) -> Serving:
    """Return the flags of a started server; device and processor are read from its log."""
    device = "cpu" if startup.facts.get("device") == "cpu" else "cuda"
    state_dtype = startup.cpu_ssm_cache_dtype
    if state_dtype:
        flags = {**flags, "mamba_ssm_cache_dtype": state_dtype}
    return replace(serving(flags, version, device), accelerated_state=state_dtype is not None)


def differences(plan: MemoryPlan, reported: Startup) -> Iterator[str]:
    """Yield one sentence for every figure that differs from the plan by more than 5 %.

    A log rounds the memory, so the plan is an interval.
    """
    tokens, concurrency = (reported.figures.get(name) for name in ("kv_tokens", "kv_concurrency"))
    if plan.low and plan.high and tokens is not None:
        yield from _deviation("tokens of KV cache", tokens, plan.low.tokens, plan.high.tokens)
    if plan.low and plan.high and concurrency is not None:
        low, high = plan.low.concurrency, plan.high.concurrency
        yield from _deviation("requests of the longest length at once", concurrency, low, high)
    weights = reported.figures.get("weights_gib")
    if plan.weights and weights is not None:
        planned = plan.weights.bytes_per_device / GIB
        slack = (ROUNDED_GIB, ROUNDED_GIB + SEGMENT_GIB)
        yield from _deviation("GiB of weights on a device", weights, planned, planned, slack)


def _deviation(
    figure: str, reported: float, low: float, high: float, slack: tuple[float, float] = (0, 0)
) -> Iterator[str]:
    below, above = slack
    if not low * (1 - MARGIN) - below <= reported <= high * (1 + MARGIN) + above:
        between = f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"
        yield f"{figure}: planned {between}, but vLLM reports {reported:,.6g}"
