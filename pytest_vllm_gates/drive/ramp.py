"""Raises the offered rate until a server does not keep it, and closes in on where that begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pytest_vllm_gates.load.types import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_vllm_gates.facts.traffic import Ramp
    from pytest_vllm_gates.load.types import Limit, Phase

    Judge: TypeAlias = Callable[[float, Phase], Limit | None]

FEWEST = 20
"""Requests of a step: of fewer there is no 95th percentile to speak of."""


def count(rate: float, plan: Ramp) -> int:
    """Return how many requests a step at this rate has."""
    return max(FEWEST, math.ceil(rate * plan.seconds))


@dataclass
class Climb:
    """One ramp. The rate's `drive` drives a step; `limit` tells what kept it from being served."""

    plan: Ramp
    drive: Callable[[float], Phase]
    limit: Judge
    progress: Callable[[Step], None] = lambda _: None
    steps: list[Step] = field(default_factory=list, init=False)

    def climb(self, start: float) -> tuple[Step, ...]:
        """Return the steps in the order they were driven, from this rate on.

        Up while rates are kept; down first where even the start is not. Then, between the highest
        that was kept and the lowest that was not, half-way in the logarithm. A limit of the client
        and a server that hangs or answers nothing end it.
        """
        rate = start
        while len(self.steps) < self.plan.steps and self._goes_on():
            kept = self._step(rate)
            if len(self.steps) > 1 and kept != self._first_kept:
                break
            rate = rate * self.plan.growth if kept else rate / self.plan.growth
        for _ in range(self.plan.refine):
            kept_rates = [one.rate for one in self.steps if not one.limit]
            others = [one.rate for one in self.steps if one.limit]
            if not (kept_rates and others and self._goes_on()):
                break
            self._step(math.sqrt(max(kept_rates) * min(others)))
        return tuple(self.steps)

    @property
    def _first_kept(self) -> bool:
        return self.steps[0].limit is None

    def _goes_on(self) -> bool:
        """Return whether another step may tell anything."""
        if not self.steps:
            return True
        last = self.steps[-1]
        answered = any(not one.error for one in last.phase.answers)
        return answered and not last.phase.hang and not (last.limit and last.limit.clients)

    def _step(self, rate: float) -> bool:
        phase = self.drive(rate)
        step = Step(rate, phase, self.limit(rate, phase))
        self.steps.append(step)
        self.progress(step)
        return step.limit is None
