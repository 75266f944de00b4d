"""The times of boots, with cold and with warm caches, and how they compare with recorded ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic reads them
from dataclasses import dataclass, field

COLD, WARM = "cold", "warm"
TOTAL = "total"
EARLY_S = 5.0
"""If the first answer takes this much longer than the next, `/health` was ready too early."""
CHANCE = 0.01
"""The largest probability of a difference by chance that still counts as a difference."""
LEAST_RATIO = 1.05
"""A smaller difference does not matter."""


@dataclass(frozen=True)
class WarmupBoot:
    """One boot. Times are seconds from the start of the process, unless stated otherwise."""

    caches: str
    """`cold` or `warm`."""
    phases_s: Mapping[str, float]
    """The seconds of each phase, in order; they add up to `total_s`."""
    health_s: float
    """Until `/health` answered 200."""
    total_s: float
    """Until the end of the first right answer."""
    first_chat_s: float
    """The duration of the first chat after that 200."""
    next_chat_s: float
    """The duration of the same chat, repeated."""

    @property
    def is_early(self) -> bool:
        """Whether `/health` answered 200 well before the server could serve."""
        late_s = self.first_chat_s - self.next_chat_s
        return late_s > EARLY_S and self.first_chat_s > 2 * self.next_chat_s


@dataclass(frozen=True)
class WarmupTimes:
    """The boots of one family on one lane."""

    family: str
    checkpoint: str
    lane: str
    vllm: str
    """Its version; '' if it is not known."""
    machine: str
    created: str
    environment_s: float
    """Until the lane's environment existed; it is made once, and reused afterwards."""
    boots: Sequence[WarmupBoot] = field(default_factory=tuple)

    def of(self, caches: str) -> list[WarmupBoot]:
        """Return the boots with such caches."""
        return [boot for boot in self.boots if boot.caches == caches]


@dataclass(frozen=True)
class Spread:
    """The times of several boots for the same phase, in seconds."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of one value or more."""
    return Spread(statistics.median(values), min(values), max(values))


def phase_spreads(boots: Sequence[WarmupBoot]) -> dict[str, Spread]:
    """Return the spread of each phase that all boots have, and of the total, in their order."""
    names = [
        name for name in boots[0].phases_s if all(name in boot.phases_s for boot in boots)
    ] if boots else []  # fmt: skip
    spreads = {name: spread([boot.phases_s[name] for boot in boots]) for name in names}
    if boots:
        spreads[TOTAL] = spread([boot.total_s for boot in boots])
    return spreads


@dataclass(frozen=True)
class WarmupChange:
    """How the boots with one kind of caches compare with recorded ones."""

    caches: str
    now: Spread
    recorded: Spread
    chance: float
    """The probability, without a real difference, that each boot is slower than each recorded."""
    apart: bool
    """Whether every boot now took longer than every recorded one."""

    @property
    def is_slower(self) -> bool:
        """Whether the server takes longer to start than recorded."""
        return (
            self.apart
            and self.chance <= CHANCE
            and self.now.median > LEAST_RATIO * self.recorded.median
        )

    @property
    def is_open(self) -> bool:
        """Whether more boots could decide a difference that is open now."""
        return self.apart and self.chance > CHANCE


def changes(now: WarmupTimes, recorded: WarmupTimes) -> list[WarmupChange]:
    """Compare boots with recorded ones, separately for cold and warm caches.

    If nothing changed, all orders of n and m boots are equally likely, so the probability that all
    n are the slowest is 1 in n + m over n (Wilcoxon's rank sum test at its extreme).
    """
    found = []
    for caches in (COLD, WARM):
        ours, theirs = ([boot.total_s for boot in times.of(caches)] for times in (now, recorded))
        if ours and theirs:
            chance = 1 / math.comb(len(ours) + len(theirs), len(ours))
            apart = min(ours) > max(theirs)
            found.append(WarmupChange(caches, spread(ours), spread(theirs), chance, apart))
    return found
