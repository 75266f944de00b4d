"""The conclusion of a throughput gate, and the sentences that report it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.plans import Odds
    from pytest_vllm_gates.throughput.statistics import Mean

PRIMARY = "output_tokens_per_s"


class Conclusion(StrEnum):
    """The conclusion of a gate on a figure."""

    REGRESSION = "REGRESSION"
    NO_REGRESSION = "NO REGRESSION"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Decision:
    """A conclusion with its figures."""

    answer: Conclusion
    why: str
    """Why it is undecided; the secondary figures that are surely worse; the host's speed."""
    means: dict[str, Mean] = field(default_factory=dict)
    """Slowdowns by the figure's name."""
    errors: tuple[float, float] = (0.0, 0.0)
    """The error rates of the conclusion: of a false alarm, of a false pass."""
    void: dict[str, int] = field(default_factory=dict)
    """Blocks left out, or groups of four, by reason."""
    alarm: float | None = None
    """The probability of figures this bad by chance, as a share of this look's error for a false
    alarm: an alarm is at most 1. A fleet of many gates requires less."""

    def sentence(self, odds: Odds) -> str:
        """Return the conclusion on the primary figure, with its interval and the odds."""
        if PRIMARY not in self.means:
            return f"{self.answer}: {self.why}"
        mean = self.means[PRIMARY]
        low, high = mean.above(self.errors[0]), mean.below(self.errors[1])
        more = f"; {self.why}" if self.why else ""
        return (
            f"{self.answer}: {changed(PRIMARY, mean.value)} {PRIMARY} (surely between "
            f"{changed(PRIMARY, high)} and {changed(PRIMARY, low)}; at most {odds.alpha:.1%} of "
            f"all gates are wrong alarms and {odds.beta:.1%} wrong passes){more}"
        )

    def brief(self) -> str:
        """Return the current state, for a line of progress."""
        if PRIMARY not in self.means:
            return "too few blocks yet"
        mean = self.means[PRIMARY]
        worst, best = mean.below(self.errors[1]), mean.above(self.errors[0])
        undecided = self.answer is Conclusion.INCONCLUSIVE
        return (
            f"{changed(PRIMARY, mean.value)} tokens/s ({changed(PRIMARY, worst)} to "
            f"{changed(PRIMARY, best)}), {'not sure yet' if undecided else self.answer}"
        )

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON; changes are shares of the old figures."""
        return {
            "answer": str(self.answer),
            "why": self.why,
            "changes": {
                name: {
                    "change": _share(name, mean.value),
                    "at_best": _share(name, mean.above(self.errors[0])),
                    "at_worst": _share(name, mean.below(self.errors[1])),
                    "sd_error": round(mean.error, 5),
                    "degrees": mean.degrees,
                }
                for name, mean in self.means.items()
            },
            "errors_spent_now": [round(error, 6) for error in self.errors],
            "alarm": self.alarm,
            "void": self.void,
        }


def changed(name: str, slowdown: float) -> str:
    """Return a slowdown as the change of the usual figure: -4.9 % tokens per second."""
    return f"{_share(name, slowdown):+.1%}"


def too_few(void: dict[str, int], of: int, unit: str = "blocks") -> str:
    """Return how many of `of` units were left out, and the most frequent reason."""
    mostly = max(void, key=void.__getitem__, default="too few were made")
    return f"{sum(void.values())} of {of} {unit} are left out, mostly: {mostly}"


def _share(name: str, slowdown: float) -> float:
    return round(math.exp(-slowdown if name == PRIMARY else slowdown) - 1, 5)
