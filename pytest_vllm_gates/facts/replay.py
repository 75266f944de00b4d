"""What may be taken from an incident's bundle when it is replayed, read from `replay.toml`."""

from __future__ import annotations

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

SHIPPED = data.FOLDER / "replay.toml"


class LaneRules(toml.Record):
    """What the lane of a bundle may set."""

    serve: tuple[str, ...]
    env: tuple[str, ...]


class Rules(toml.Record):
    """The file."""

    above_the_weights: tuple[str, ...]
    without_weights: tuple[str, ...]
    lane: LaneRules


def load() -> Rules:
    """Read the shipped rules."""
    return toml.load(SHIPPED, Rules)
