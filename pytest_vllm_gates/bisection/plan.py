"""The costs of a bisection: boots by phase, and environments to make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.bisection import search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.bisection.types import AxisSpan

ENDS = 2
SIDES = 2
NOISE_FACTOR = 6
"""Most boots for one answer if answers are wrong at a rate of at most 0.1."""


@dataclass(frozen=True)
class BisectPlan:
    """The steps of a bisection, each with its largest number of boots."""

    steps: tuple[tuple[str, int], ...]

    @property
    def boots(self) -> int:
        """All boots, for one culprit along the longest axis."""
        return sum(boots for _, boots in self.steps)


def of(axes: Sequence[AxisSpan], *, noisy: bool) -> BisectPlan:
    """Return the plan for one culprit; a culprit of several axes takes more."""
    factor = NOISE_FACTOR if noisy else 1
    steps = [("the good lane and the bad one", ENDS * factor)]
    if len(axes) > 1:
        boots = math.ceil(math.log2(len(axes))) + 1
        steps.append((f"which of {len(axes)} axes", boots * factor))
    along = [(_along(axis), axis) for axis in axes]
    if along:
        boots, axis = max(along, key=lambda pair: pair[0])
        what = _parts(axis)
        if boots:
            steps.append((f"along {axis.name}: {what}", boots * factor))
    if not noisy:
        steps.append(("both sides of the result, until each has three answers",
                      SIDES * (search.SURE - 1)))  # fmt: skip
    return BisectPlan(tuple(steps))


def _parts(axis: AxisSpan) -> str:
    if not axis.versions:
        return f"{len(axis.items)} changes"
    return f"{len(axis.versions)} {'versions' if axis.missing else 'releases'}"


def _along(axis: AxisSpan) -> int:
    """Return the most boots along an axis, without its ends."""
    if axis.versions:
        return math.ceil(math.log2(max(1, len(axis.versions) - 1)))
    return math.ceil(math.log2(len(axis.items))) + 1 if len(axis.items) > 1 else 0
