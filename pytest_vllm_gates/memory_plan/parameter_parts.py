"""Parts of a model's parameters: their role, their number and the module that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Role(StrEnum):
    """The role of parameters: quantisation treats each role differently."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    DENSE = "dense"
    EXPERTS = "experts"
    PLAIN = "norms, routers and states"
    VISION = "vision"


@dataclass(frozen=True)
class ParameterPart:
    """Parameters of one role; every device stores all of a `replicated` part."""

    role: Role
    count: int
    replicated: bool = False
    name: str = ""
    """The module within the language model: `layers.3.self_attn.q_proj`."""
    columns: int = 0
    """Inputs of the module: a row with this many weights shares one per-channel scale."""
    layer: int | None = None
    """Its layer; None outside the layers."""


def modules(
    role: Role,
    layer: int,
    parent: str,
    shapes: dict[str, tuple[int, int]],
    *,
    replicated: bool = False,
) -> Iterator[ParameterPart]:
    """Yield a part for each module below `layers.LAYER.PARENT`, from its (rows, columns)."""
    for name, (rows, columns) in shapes.items():
        full_name = f"layers.{layer}.{parent}.{name}"
        yield ParameterPart(role, rows * columns, replicated, full_name, columns, layer)
