"""How a project's figures went from run to run, each held only against its like."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.history.types import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vllm_gates.history.types import Entry

LEAST = 2


@dataclass(frozen=True)
class Trend:
    """One figure of one family and checkpoint on one lane and machine, the oldest value first."""

    family: str
    checkpoint: str
    lane: str
    machine: str
    figure: str
    values: tuple[float, ...]

    @property
    def change(self) -> float | None:
        """The last value against the median of those before it, as a share; None against zero."""
        before = statistics.median(self.values[:-1])
        return self.values[-1] / before - 1 if before else None


def trends(entries: Iterable[Entry], family: str | None = None) -> tuple[Trend, ...]:
    """Return the trend of every figure that two runs or more have, of one family or of all."""
    found: dict[tuple[str, str, str, str, str], list[float]] = {}
    for entry in entries:
        for name, figures in entry.figures.items():
            if family not in (None, name):
                continue
            where = (name, entry.checkpoints[name], entry.lane, entry.machine)
            for figure in FIGURES:
                if figure in figures:
                    found.setdefault((*where, figure), []).append(figures[figure])
    return tuple(
        Trend(*where, tuple(values)) for where, values in found.items() if len(values) >= LEAST
    )
