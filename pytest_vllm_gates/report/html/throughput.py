"""The speed of two sides: each change with its interval, and the figures behind it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.charts import axis, figure, share
from pytest_vllm_gates.report.html.drawing import (
    Drawing,
    Scale,
    listing,
    mapping,
    number,
    scale,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vllm_gates.report.html.drawing import TextLimits

FIGURES = {
    "output_tokens_per_s": ("output tokens a second", "tokens/s", True),
    "ttft_s": ("time to the first token", "s", False),
    "itl_s": ("time between tokens", "s", False),
}
"""The title of a figure, its unit, and whether more is better."""
ROW_HEIGHT = 46
QUARTILES = 4
LEAST_FOR_BOX = 5
MOST_SLOWDOWN = 9.0
"""The logarithm of a ratio above which a pair is not drawn."""


@dataclass(frozen=True)
class FigureChange:
    """One figure's change with its interval, in words and as shares of the old figure."""

    name: str
    says: str
    change: float
    low: float
    high: float
    points: tuple[float, ...]
    """The change in each pair of boots."""


@dataclass(frozen=True)
class FigureDistribution:
    """One figure of both sides, block by block."""

    name: str
    drawing: Drawing
    sides: tuple[tuple[str, int, str, str, str], ...]
    """Name, blocks, and least, median and most with their unit."""


@dataclass(frozen=True)
class ThroughputSection:
    """Everything that the section shows."""

    answer: str
    drawing: Drawing | None
    changes: tuple[FigureChange, ...]
    distributions: tuple[FigureDistribution, ...]


def comparison(evidence: dict[str, Any], ours: str, limits: TextLimits) -> ThroughputSection | None:
    """Return the recorded decision of a throughput check; None if it has none."""
    decision = mapping(evidence.get("decision"))
    changes = tuple(_changes(decision, listing(evidence.get("pairs"))))
    theirs = str(evidence.get("against") or "recorded")
    blocks = mapping(evidence.get("blocks"))
    sides = [
        (ours, mapping(blocks.get("ours"))),
        (theirs, mapping(blocks.get("theirs"))),
    ]
    distributions = tuple(
        distribution for name in FIGURES if (distribution := _distribution(name, sides, limits))
    )
    if not changes and not distributions:
        return None
    return ThroughputSection(
        answer=str(decision.get("answer", "")),
        drawing=_intervals(changes) if changes else None,
        changes=changes,
        distributions=distributions,
    )


def _changes(decision: dict[str, Any], pairs: Sequence[Any]) -> list[FigureChange]:
    changes = []
    for name, (called, _, more_is_better) in FIGURES.items():
        interval = mapping(mapping(decision.get("changes")).get(name))
        change, best, worst = (number(interval.get(of)) for of in ("change", "at_best", "at_worst"))
        if change is None or best is None or worst is None:
            continue
        slowdowns = [number(mapping(mapping(pair).get("slowdowns")).get(name)) for pair in pairs]
        sign = -1 if more_is_better else 1
        points = [
            math.expm1(sign * slowdown)
            for slowdown in slowdowns
            if slowdown is not None and abs(slowdown) < MOST_SLOWDOWN
        ]
        low, high = sorted((best, worst))
        says = f"{called}: {share(change)} (surely between {share(low)} and {share(high)})"
        changes.append(FigureChange(called, says, change, low, high, tuple(points)))
    return changes


def _intervals(changes: Sequence[FigureChange]) -> Drawing:
    """Draw each change as a point on its interval, with a line at 0 for comparison."""
    ends = [
        value
        for figure_change in changes
        for value in (
            figure_change.low,
            figure_change.high,
            figure_change.change,
            *figure_change.points,
        )
    ]
    across = scale(ends, zero=True)
    drawing = Drawing(
        height=ROW_HEIGHT * len(changes) + 22,
        says=". ".join(figure_change.says for figure_change in changes),
    )
    bottom = ROW_HEIGHT * len(changes)
    drawing.line(across(0), 4, across(0), bottom, "zero")
    for at, change in enumerate(changes):
        middle = at * ROW_HEIGHT + 30
        drawing.text(1, at * ROW_HEIGHT + 13, change.name, "label")
        drawing.rect(
            across(change.low), middle - 5, across(change.high) - across(change.low), 10, "band"
        )
        for point in change.points:
            drawing.dot(across(point), middle, "pair", 2.5)
        drawing.dot(across(change.change), middle, "estimate", 5)
    axis(drawing, across, bottom, share)
    return drawing


def _distribution(
    name: str, sides: Sequence[tuple[str, dict[str, Any]]], limits: TextLimits
) -> FigureDistribution | None:
    called, unit, _ = FIGURES[name]
    known = []
    for side, figures in sides:
        values = [number(value) for value in listing(figures.get(name))]
        if known_values := sorted(value for value in values if value is not None):
            known.append((side, known_values))
    if not known:
        return None
    across = scale([value for _, known_values in known for value in known_values])
    summaries = tuple(
        (
            side,
            len(known_values),
            figure(known_values[0], unit),
            figure(statistics.median(known_values), unit),
            figure(known_values[-1], unit),
        )
        for side, known_values in known
    )
    says = "; ".join(
        f"{side}: {count} blocks, median {median}, from {low} to {high}"
        for side, count, low, median, high in summaries
    )
    drawing = Drawing(height=ROW_HEIGHT * len(known) + 22, says=f"{called}. {says}")
    for at, (side, known_values) in enumerate(known):
        _strip(drawing, across, at * ROW_HEIGHT, side, spread(known_values, limits.marks))
    axis(
        drawing,
        across,
        ROW_HEIGHT * len(known),
        lambda value: figure(value, unit if unit == "s" else ""),
    )
    return FigureDistribution(called, drawing, summaries)


def _strip(drawing: Drawing, across: Scale, top: float, side: str, values: Sequence[float]) -> None:
    middle = top + 30
    drawing.text(1, top + 13, side, "label")
    if len(values) >= LEAST_FOR_BOX:
        low, median, high = statistics.quantiles(values, n=QUARTILES)
        drawing.rect(across(low), middle - 9, across(high) - across(low), 18, "box")
        drawing.line(across(median), middle - 9, across(median), middle + 9, "median")
    for value in values:
        drawing.dot(across(value), middle, "block", 2.2)
