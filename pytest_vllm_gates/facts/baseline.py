"""Recorded figures, and what they hold for: nothing is compared across machines or flags."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass, fields
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.catalog.plans import Block, Scatter  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Conditions:
    """Under what figures were measured; figures of other conditions are never compared."""

    machine: Mapping[str, Any]
    model: Mapping[str, Any]
    lane: str
    flags: Mapping[str, Any]
    """How the model is served: flags and environment."""
    work: Mapping[str, Any]
    """What a block consists of."""

    def differences(self, now: Conditions) -> Iterator[str]:
        """Yield what is otherwise now, as people read it."""
        for field in fields(self):
            recorded, found = getattr(self, field.name), getattr(now, field.name)
            if not isinstance(recorded, dict):
                recorded, found = {"": recorded}, {"": found}
            for key in dict.fromkeys([*recorded, *found]):
                before, after = recorded.get(key), found.get(key)
                if before != after:
                    name = f"{field.name}.{key}".rstrip(".")
                    yield f"{name} was {_told(before)} and is {_told(after)}"


@dataclass(frozen=True)
class Recorded:
    """The figures of one boot, as recorded."""

    path: Path
    conditions: Conditions
    versions: Mapping[str, str]
    """Of what was served with: other versions of it are what a baseline is there to judge."""
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Calibration:
    """How much pairs of boots of one and the same lane differ, from an A/A run."""

    conditions: Conditions
    pair_sd: Scatter
    pairs: int


def _told(value: object) -> str:
    return "not given" if value is None else str(value)
