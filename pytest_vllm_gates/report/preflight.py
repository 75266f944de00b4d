"""The preflight checks, as a document and as a person reads them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.preflight.types import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.preflight.types import Check


def document(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return the checks as JSON."""
    return [dataclasses.asdict(check) for check in checks]


def command(family: Family, checkpoint: Checkpoint, lane: str) -> str:
    """Return what a person types to see whether a family can boot on a lane."""
    listed = checkpoint.name in [entry.name for entry in family.checkpoints]
    named = checkpoint.name if listed else checkpoint.source
    return f"vllm-gates preflight --model {family.name} --checkpoint {named} --lane {lane}"


def lines(checks: Iterable[Check]) -> Iterator[str]:
    """Yield one line a check, and under one that fails its cause and what to do."""
    checks = tuple(checks)
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        state = check.state.upper() if check.state is State.FAILS else str(check.state)
        yield f"{check.name:<{width}}  {state:<7}  {check.what}"
        if check.state is State.FAILS:
            yield f"{'':<{width}}  cause:   {check.cause}"
            yield f"{'':<{width}}  fix:     {check.fix}"
    counted = {state: sum(check.state is state for check in checks) for state in State}
    yield ", ".join(f"{number} {state}" for state, number in counted.items() if number)
