"""The questions, answers and results of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class TrialAnswer(StrEnum):
    """The result of one bundle."""

    GOOD = "GOOD"
    BAD = "BAD"
    INCONCLUSIVE = "INCONCLUSIVE"
    """It does not resolve, does not boot, or nothing could be judged."""


@dataclass(frozen=True)
class AxisSpan:
    """One difference of the two lanes, and the versions between."""

    name: str
    good: str
    """The good lane's value, in words."""
    bad: str
    versions: tuple[str, ...] = ()
    """The releases from the good one to the bad one, both included; empty for other axes."""
    items: tuple[str, ...] = ()
    """The single changes of an axis with several, such as flags."""
    missing: tuple[tuple[str, ...], ...] = ()
    """Commits without a wheel: those between each version and the next; empty for releases."""
    newer_good: bool = False
    """Whether the good version is the newer one: the defect ended with it."""


@dataclass(frozen=True)
class Mixture:
    """A bundle between the good and the bad one.

    It has the axes of `changed` from the bad lane and all others from the good one.
    """

    changed: frozenset[str] = frozenset()
    version: tuple[str, str] | None = None
    """An axis at a release between, and the release."""
    items: tuple[str, frozenset[str]] | None = None
    """An axis with only these changes made."""

    @property
    def key(self) -> str:
        """The mixture as one line: its name in the state and in tables."""
        parts = [f"bad {name}" for name in sorted(self.changed)]
        if self.version:
            parts.append(" ".join(self.version))
        if self.items:
            parts.append(f"{self.items[0]}: {' '.join(sorted(self.items[1])) or 'none'}")
        return ", ".join(parts) or "good"


Ask = Callable[[Mixture, int], TrialAnswer]
"""Returns a mixture's result in its trial of that number, counted from 1."""


@dataclass(frozen=True)
class AxisCulprit:
    """The result along one axis."""

    axis: str
    last_good: str
    first_bad: str
    untried: tuple[str, ...] = ()
    """Releases between the two that could not be judged."""
    items: tuple[str, ...] = ()
    newer_good: bool = False
    """Whether the last good version is the newer one."""
    without_wheel: tuple[str, ...] = ()
    """Commits between the two that have no wheel."""


@dataclass(frozen=True)
class BisectResult:
    """The result of a search."""

    culprits: tuple[AxisCulprit, ...] = ()
    """One axis, or axes that are bad only together; empty if nothing was found."""
    certain: bool = False
    """Whether every deciding answer was given three times alike, and one change remains."""
    confidence: float = 0.0
    """The probability of these culprits, by the stated rate of wrong answers."""
    reasons: tuple[str, ...] = ()
    """Why it is not certain, or why nothing was found."""
