"""How far apart healthy servers of a lane's bundle are by nature, as a lane's file states it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_vllm_gates.catalog import toml

Nats = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HarmlessNats(toml.Record):
    """How far apart the same tokens were, the middle of the texts (a geometric mean), in nats."""

    nats: Nats
    """Over all tokens of a text."""
    closest_nats: Nats
    """Over the nine tenths that are closest."""


class NumericScales(toml.Record):
    """A lane's `[numerics]`: each was measured between servers that were healthy."""

    other_machine: dict[str, HarmlessNats] = Field(default_factory=dict)
    """By family, between two machines with this very bundle."""
