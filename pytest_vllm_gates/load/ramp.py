"""Finds the highest rate within the limits: a server's capacity under SLO.

A ramp raises the offered rate until the server exceeds a limit, then bisects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_vllm_gates.load import arrivals
from pytest_vllm_gates.load.drift import CONFIDENCE, FEWEST_POINTS
from pytest_vllm_gates.load.latency import P95, beyond, latency, percentile
from pytest_vllm_gates.load.types import Limit, RampStep
from pytest_vllm_gates.long_context.checks import hang_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.catalog.plans import Ramp, Traffic
    from pytest_vllm_gates.load.types import Phase

    Judge: TypeAlias = Callable[[float, Phase], Limit | None]

MOST_POINTS = 500
"""With more answers only every second one is used, or every third: there are many pairs."""
FEWEST = 20
"""Requests of a step: fewer have no useful 95th percentile."""


def limit(rate: float, phase: Phase, traffic: Traffic) -> Limit | None:
    """Return the limit that a rate exceeded; None if it exceeded none."""
    if why := arrivals.schedule_fault(phase) or arrivals.late(phase, traffic.limits):
        return Limit(why, clients=True)
    if phase.hang:
        return Limit(hang_sentence(phase.hang), clients=False)
    failed = [answer.error for answer in phase.answers if answer.error]
    if len(failed) > traffic.limits.error_rate * len(phase.answers):
        first = max(set(failed), key=failed.count)
        why = f"{len(failed)} of {len(phase.answers)} requests failed, mostly: {first}"
        return Limit(why, clients=False)
    if why := next(beyond(phase, traffic.limits), ""):
        return Limit(why, clients=False)
    if achieved(phase, at_most=True) < traffic.ramp.achieved:
        why = (
            f"{achieved(phase) * rate:.3g} of {rate:.3g} requests per second are answered, "
            f"{traffic.ramp.achieved:.0%} are required"
        )
        return Limit(why, clients=False)
    return None


def achieved(phase: Phase, *, at_most: bool = False) -> float:
    """Return the rate at which answers ended as a share of the rate of requests, 0 to 1.

    A server that keeps up ends the last answer as soon as the first; if it ends b seconds later for
    every second that a request came later, it answers 1 / b of them. The slope is Sen's, as for a
    soak's drift: a single bad moment does not change it. `at_most`: with the end of its 95 %
    interval that is in the server's favour.
    """
    from scipy import stats  # noqa: PLC0415 - half a second of import, for a ramp alone

    pairs = sorted(
        (answer.intended_s, answer.ended_s) for answer in phase.answers if not answer.error
    )
    pairs = pairs[:: len(pairs) // MOST_POINTS + 1]
    arrivals_s, ends_s = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if len(set(arrivals_s)) < FEWEST_POINTS:
        return 1.0
    estimate, _, low, _ = stats.theilslopes(ends_s, arrivals_s, alpha=CONFIDENCE)
    slope = float(low if at_most else estimate)
    return min(1.0, 1.0 / slope) if slope > 0 else 1.0


def capacity(steps: Sequence[RampStep]) -> float | None:
    """Return the highest rate that was kept, below the lowest that was not; None for none."""
    lowest = min((step.rate for step in steps if step.limit), default=float("inf"))
    return max((step.rate for step in steps if not step.limit and step.rate < lowest), default=None)


def limited(steps: Sequence[RampStep]) -> RampStep | None:
    """Return the step with the lowest rate that was not kept; None if all were."""
    return min((step for step in steps if step.limit), key=lambda step: step.rate, default=None)


def below(rate: float, steps: Sequence[RampStep]) -> str:
    """Return that the server does not keep a planned rate; '' if it does.

    Returns '' if the client reached its own limit first: see `undecided`.
    """
    highest, first = capacity(steps), limited(steps)
    if first is None or first.limit is None or first.limit.clients or rate <= (highest or 0.0):
        return ""
    most = f"{highest:.3g} a second are kept" if highest else "no rate that was tried is kept"
    return (
        f"{rate:.3g} requests a second are planned, and {most}; at {first.rate:.3g}: "
        f"{first.limit.why}"
    )


def undecided(rate: float, steps: Sequence[RampStep]) -> str:
    """Return why the ramp does not show whether a planned rate is kept; '' if it does."""
    highest, first = capacity(steps), limited(steps)
    if rate <= (highest or 0.0) or (first and first.limit and not first.limit.clients):
        return ""
    if first and first.limit:
        return f"at {first.rate:.3g} requests a second: {first.limit.why}"
    return f"the ramp ended at {highest or 0.0:.3g} requests a second, {rate:.3g} are planned"


def as_evidence(steps: Sequence[RampStep]) -> dict[str, Any]:
    """Return the capacity, what limited it and every step in the order of its rate, as JSON."""
    first = limited(steps)
    return {
        "capacity_requests_per_s": capacity(steps),
        "limited_at_requests_per_s": first.rate if first else None,
        "limited_by": first.limit.why if first and first.limit else None,
        "clients_limit": bool(first and first.limit and first.limit.clients),
        "steps": [_step(step) for step in sorted(steps, key=lambda step: step.rate)],
    }


def _step(step: RampStep) -> dict[str, Any]:
    latencies = [request for request in map(latency, step.phase.answers) if request]
    return {
        "rate": round(step.rate, 3),
        "requests": len(step.phase.answers),
        "achieved": round(achieved(step.phase), 3),
        "ttft_p95_s": round(percentile([request.ttft_s for request in latencies], P95), 4)
        if latencies
        else None,
        "limit": step.limit.why if step.limit else None,
    }


def count(rate: float, plan: Ramp) -> int:
    """Return how many requests a step at this rate has."""
    return max(FEWEST, math.ceil(rate * plan.seconds))


@dataclass
class RampDriver:
    """One ramp: `drive` drives a step at a rate; `limit` returns the limit that it exceeded."""

    plan: Ramp
    drive: Callable[[float], Phase]
    limit: Judge
    progress: Callable[[RampStep], None] = lambda _: None
    steps: list[RampStep] = field(default_factory=list, init=False)

    def climb(self, start: float) -> tuple[RampStep, ...]:
        """Return the steps in the order they were driven, from this rate on.

        Up while rates are kept; down first if even the start is not. Then, between the highest
        that was kept and the lowest that was not, half-way in the logarithm. A limit of the client,
        and a server that hangs or answers nothing, end it.
        """
        rate = start
        while len(self.steps) < self.plan.steps and self._goes_on():
            kept = self._step(rate)
            if len(self.steps) > 1 and kept != self._first_kept:
                break
            rate = rate * self.plan.growth if kept else rate / self.plan.growth
        for _ in range(self.plan.refine):
            kept_rates = [step.rate for step in self.steps if not step.limit]
            others = [step.rate for step in self.steps if step.limit]
            if not (kept_rates and others and self._goes_on()):
                break
            self._step(math.sqrt(max(kept_rates) * min(others)))
        return tuple(self.steps)

    @property
    def _first_kept(self) -> bool:
        return self.steps[0].limit is None

    def _goes_on(self) -> bool:
        """Return whether another step may be useful."""
        if not self.steps:
            return True
        last = self.steps[-1]
        answered = any(not answer.error for answer in last.phase.answers)
        return answered and not last.phase.hang and not (last.limit and last.limit.clients)

    def _step(self, rate: float) -> bool:
        phase = self.drive(rate)
        step = RampStep(rate, phase, self.limit(rate, phase))
        self.steps.append(step)
        self.progress(step)
        return step.limit is None
