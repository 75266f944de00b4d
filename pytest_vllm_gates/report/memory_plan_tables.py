"""Several memory plans as a table: one model at several contexts, or on every known GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.memory_plan import gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.machine.known_gpus import KnownGpu
    from pytest_vllm_gates.memory_plan.types import MemoryPlan


def contexts(plans: Sequence[MemoryPlan]) -> str:
    """Return one line for each context, and the notes of all of them once."""
    first = plans[0]
    lines = [f"{first.architecture}, vLLM {first.vllm_version}"]
    if first.refused:
        return "\n".join([*lines, *(f"refused: {why}" for why in first.refused)])
    lines.append(f"{'context':>12}  {'fits':4}  {'needs':>10}  {'concurrency':>11}  {'at once':>7}")
    for each in plans:
        concurrency = f"{each.pool.concurrency:.2f}x" if each.pool else "unknown"
        fits = "?" if each.fits is None else "yes" if each.fits else "no"
        count = "unknown" if each.largest_concurrency is None else f"{each.largest_concurrency:,}"
        lines.append(
            f"{each.context or 0:>12,}  {fits:4}  {gib(each.needed_bytes):>10}  "
            f"{concurrency:>11}  {count:>7}"
        )
    notes = dict.fromkeys(note for each in plans for note in each.notes)
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def gpus(rows: Sequence[tuple[KnownGpu, int, MemoryPlan | None]]) -> str:
    """Return one line for each GPU: the number needed, and their capacity."""
    lines = [f"{'GPU':14}  {'usable':>10}  {'needed':>6}  {'longest context':>15}  {'at once':>7}"]
    for gpu, count, made in rows:
        usable = gib(gpu.usable_bytes)
        if made is None:
            lines.append(f"{gpu.name:14}  {usable:>10}  does not fit on 1, 2, 4 or 8")
            continue
        lines.append(
            f"{gpu.name:14}  {usable:>10}  {count:>6}  {made.largest_context or 0:>15,}  "
            f"{made.largest_concurrency or 0:>7,}"
        )
    contexts_planned = {made.context for _, _, made in rows if made}
    lines += [f"planned for one request of {context:,} tokens" for context in contexts_planned
              if context]  # fmt: skip
    return "\n".join([*lines, "note: the runtime's memory is an estimate"])


def gpus_json(rows: Sequence[tuple[KnownGpu, int, MemoryPlan | None]]) -> list[dict[str, Any]]:
    """Return the table with units in its names."""
    return [
        {
            "gpu": gpu.name,
            "product": gpu.product,
            "usable_bytes": gpu.usable_bytes,
            "usable_source": gpu.source,
            "usable_estimated": gpu.estimated,
            "fits": made is not None,
            "tensor_parallel_size": count or None,
            "context": made.context if made else None,
            "largest_context": made.largest_context if made else None,
            "largest_concurrency": made.largest_concurrency if made else None,
        }
        for gpu, count, made in rows
    ]
