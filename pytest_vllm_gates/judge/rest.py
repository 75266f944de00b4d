"""What is wrong with a server that should be at rest again, or that never gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.client.sameness import compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.facts.said import Said
    from pytest_vllm_gates.long_context.types import Hang, Rest


def faults(healthy: Said, rest: Rest, *, invariant: bool) -> Iterator[str]:
    """Yield what is otherwise than before; `healthy` is what the canary said then."""
    if fault := compare(healthy, rest.canary, invariant=invariant).fault:
        yield f"afterwards a short question is not answered as before: {fault}"
    if rest.in_flight:
        yield f"{rest.in_flight} requests are still in flight, and nobody waits for them"
    elif rest.kv_usage:
        yield f"nothing is in flight, and {rest.kv_usage:.1%} of the KV cache is in use"


def hangs(hang: Hang) -> str:
    """Return how a server hangs, as a sentence."""
    stacks = f"; the stacks of its processes: {hang.stacks}" if hang.stacks else ""
    return (
        f"hangs: {hang.running} running, {hang.waiting} waiting, and for {hang.silent_s:.0f} s "
        f"nothing has moved while /health says {hang.health}{stacks}"
    )
