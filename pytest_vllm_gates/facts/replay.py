"""What may be taken from an incident's bundle when it is replayed, read from `replay.toml`."""

from __future__ import annotations

from pathlib import Path

from pytest_vllm_gates.facts import strict

SHIPPED = Path(__file__).parent.parent / "replay.toml"


class LaneRules(strict.Record):
    """What the lane of a bundle may set."""

    serve: tuple[str, ...]
    env: tuple[str, ...]


class Rules(strict.Record):
    """The file."""

    above_the_weights: tuple[str, ...]
    without_weights: tuple[str, ...]
    lane: LaneRules


def load() -> Rules:
    """Read the shipped rules."""
    return strict.load(SHIPPED, Rules)
