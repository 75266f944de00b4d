"""A memory plan as text for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.memory_plan.types import GIB

if TYPE_CHECKING:
    from pytest_vllm_gates.memory_plan.types import MemoryPlan


def as_json(model: str, plan: MemoryPlan) -> dict[str, Any]:
    """Return the plan with units in its names; unknown values are null."""
    pool, low, high, weights = plan.pool, plan.low, plan.high, plan.weights
    return {
        "model": model,
        "architecture": plan.architecture,
        "vllm_version": plan.vllm_version,
        "fits": plan.fits,
        "refused": list(plan.refused),
        "context": plan.context,
        "tokens": pool.tokens if pool else None,
        "tokens_low": low.tokens if low else None,
        "tokens_high": high.tokens if high else None,
        "max_concurrency": pool.concurrency if pool else None,
        "max_concurrency_low": low.concurrency if low else None,
        "max_concurrency_high": high.concurrency if high else None,
        "largest_context": plan.largest_context,
        "largest_concurrency": plan.largest_concurrency,
        "headroom": plan.headroom,
        "kv_cache_dtype": plan.kv_cache_dtype or None,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "state_bytes_per_sequence": plan.state_bytes_per_sequence,
        "needed_bytes": plan.needed_bytes,
        "kv_memory_bytes": plan.kv_memory_bytes,
        "layers": plan.layers,
        "block_size": plan.block_size,
        "page_bytes": plan.page_bytes,
        "bytes_per_block": plan.bytes_per_block,
        "group_size": plan.group_size,
        "groups": [asdict(group) for group in plan.groups],
        "num_blocks": pool.num_blocks if pool else None,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "parameters": weights.parameters if weights else None,
        "weights_bytes": weights.bytes_total if weights else None,
        "weights_bytes_per_device": weights.bytes_per_device if weights else None,
        "weights_source": weights.source if weights else None,
        "kv_memory_low_bytes": plan.kv_memory_low,
        "kv_memory_high_bytes": plan.kv_memory_high,
        "overhead_bytes": plan.overhead_bytes,
        "overhead_low_bytes": plan.overhead_low,
        "overhead_high_bytes": plan.overhead_high,
        "device_bytes": plan.device_bytes,
        "knobs": list(plan.knobs),
        "notes": list(plan.notes),
    }


def as_text(plan: MemoryPlan) -> str:
    """Return the plan in lines."""
    lines = [f"{plan.architecture}, vLLM {plan.vllm_version}"]
    if plan.layers:
        layers = ", ".join(f"{count} x {kind}" for kind, count in plan.layers.items())
        lines.append(f"layers: {layers}")
    if plan.refused:
        lines += [f"refused: {why}" for why in plan.refused]
        lines += [f"note: {note}" for note in plan.notes]
        return "\n".join(lines)
    lines += _cache(plan)
    lines += _room(plan)
    lines += _answer(plan)
    lines += [f"turn: {knob}" for knob in plan.knobs]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _cache(plan: MemoryPlan) -> list[str]:
    lines = [f"a token: {plan.kv_bytes_per_token:,} bytes on each device ({plan.kv_cache_dtype})"]
    if plan.state_bytes_per_sequence:
        lines.append(
            f"a sequence: {gib(plan.state_bytes_per_sequence)} of states, whatever its length"
        )
    for group, count in Counter(plan.groups).items():
        often = f"{count} groups of" if count > 1 else "a group of"
        lines.append(
            f"{often} {group.layers} x {group.kind}, blocks of {group.block_size} tokens, "
            f"{group.blocks_per_request:,} of them a request"
        )
    return lines


def _room(plan: MemoryPlan) -> list[str]:
    lines = []
    if plan.weights:
        counted = f"{plan.weights.parameters:,} parameters, " if plan.weights.parameters else ""
        lines.append(
            f"weights: {counted}{gib(plan.weights.bytes_total)}, "
            f"{gib(plan.weights.bytes_per_device)} on each device ({plan.weights.source})"
        )
    if plan.overhead_bytes is not None:
        interval = _interval(plan.overhead_low, plan.overhead_high)
        lines.append(f"runtime: {gib(plan.overhead_bytes)}{interval}")
    if plan.kv_memory_bytes is not None:
        interval = _interval(plan.kv_memory_low, plan.kv_memory_high)
        lines.append(f"cache: {gib(plan.kv_memory_bytes)} on each device{interval}")
    return lines


def _interval(low: int | None, high: int | None) -> str:
    return "" if low is None or high is None else f" ({low / GIB:.2f} to {high / GIB:.2f})"


def _answer(plan: MemoryPlan) -> list[str]:
    if plan.pool is None or plan.context is None:
        context = f"{plan.context:,}" if plan.context else "unknown"
        return [f"one request of {context} tokens needs {gib(plan.needed_bytes)} of each device"]
    verdict = "fits" if plan.fits else "does not fit"
    return [
        f"{verdict}: one request of {plan.context:,} tokens needs {gib(plan.needed_bytes)}",
        f"vLLM would print: {plan.pool.tokens:,} tokens, {plan.pool.concurrency:.2f}x at "
        f"{plan.context:,} tokens per request",
        f"at once, with {plan.headroom:.0%} kept free: {plan.largest_concurrency:,}",
        f"longest context that fits in the cache: {plan.largest_context:,} tokens",
    ]


def gib(count: int | None) -> str:
    """Return bytes in GiB, or that they are unknown."""
    return "unknown" if count is None else f"{count / GIB:.2f} GiB"
