"""The natural distance between healthy servers of a lane's bundle, from the lane's file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pytest_vllm_gates.catalog import toml

Nats = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HarmlessNats(toml.Record):
    """The distance between equal tokens, the geometric mean over the texts, in nats."""

    nats: Nats
    """Over all tokens of a text."""
    closest_nats: Nats
    """Over the closest nine tenths."""


class NumericScales(toml.Record):
    """A lane's `[numerics]`: each value was measured between healthy servers."""

    other_machine: dict[str, HarmlessNats] = Field(default_factory=dict)
    """By family, between two machines with this bundle."""
