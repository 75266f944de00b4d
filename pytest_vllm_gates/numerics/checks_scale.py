"""Measures the distance of two healthy machines, and writes it in the format of a lane's file."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog.scales import HarmlessNats
from pytest_vllm_gates.numerics.checks_paired import (
    CLOSEST,
    FLOOR,
    LEAST_TEXTS,
    LEAST_TOKENS,
    ForcedPhase,
    distance,
    paired,
    scores_of,
)

if TYPE_CHECKING:
    from pytest_vllm_gates.numerics.forced_types import ForcedRun


def between_machines(trusted: ForcedRun, now: ForcedRun) -> HarmlessNats:
    """Return the distance of two runs, of the phase in which they are farthest apart.

    The middle of the texts is the mean of logarithms, as in `compare`.
    """
    pairs = paired(trusted, now)
    nats, closest = FLOOR, FLOOR
    for phase in ForcedPhase:
        scores = [scores_of(phase, one, other) for one, other in pairs]
        scores = [entry for entry in scores if len(entry[0]) >= LEAST_TOKENS]
        if len(scores) < LEAST_TEXTS:
            continue
        middles = [
            math.exp(
                statistics.fmean(
                    math.log(distance(one, other, part) + FLOOR) for one, other in scores
                )
            )
            for part in (1.0, CLOSEST)
        ]
        nats, closest = max(nats, middles[0]), max(closest, middles[1])
    return HarmlessNats(nats=nats, closest_nats=closest)


def as_toml(family: str, scale: HarmlessNats) -> str:
    """Format a scale as in a lane's file."""
    return (
        f'[numerics.other_machine."{family}"]\n'
        f"nats = {scale.nats:.5f}\nclosest_nats = {scale.closest_nats:.5f}"
    )
