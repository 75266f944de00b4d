"""Charts of figures: bars, percentiles and lines over time, and figures with their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.report.html.drawing import Drawing, Scale, scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OURS, THEIRS = "ours", "theirs"
"""Styles of the two lanes' marks."""
ROW_HEIGHT = 30
HEADING_HEIGHT = 18
MOST_CHARACTERS = 36
"""The most characters of a name in a drawing."""
BAR_HEIGHT = 10
STRIP_HEIGHT = 58
NEAR_LEFT, NEAR_RIGHT = 8, 92
"""Percent of the width: outside these, a centered word would be cut."""
LEAST_WIDTH = 0.4


@dataclass(frozen=True)
class BarRow:
    """One bar: its heading, its name and the side it belongs to."""

    of: str
    whose: str
    style: str
    value: float


@dataclass(frozen=True)
class SpanRow:
    """Percentiles of one figure, the least first, joined by a line."""

    of: str
    whose: str
    style: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class StripLine:
    """One line over time: (seconds, value)."""

    style: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Strip:
    """Lines that share a scale of values, from 0."""

    label: str
    lines: tuple[StripLine, ...]


def bars(
    rows: Sequence[BarRow], words: Callable[[float], str], *, limit: tuple[float, str] | None = None
) -> Drawing | None:
    """Draw bars from 0 on one scale, with a line at `limit`; None for no rows."""
    if not rows:
        return None
    ends = [row.value for row in rows] + ([limit[0]] if limit else [])
    across = Scale(0.0, max(ends) * 1.02 or 1.0)
    says = "; ".join(f"{row.of}, {row.whose}: {words(row.value)}" for row in rows)
    drawing = Drawing(height=0, says=says + (f". Limit: {limit[1]}" if limit else ""))
    tops = _tops(drawing, rows)
    bottom = drawing.height
    for row, top in zip(rows, tops, strict=True):
        _name(drawing, top, f"{_short(row.whose)}: {words(row.value)}")
        width = max(LEAST_WIDTH, across(row.value) - across(0.0))
        drawing.rect(across(0.0), top + 17, width, BAR_HEIGHT, f"bar {row.style}")
    if limit:
        drawing.line(across(limit[0]), 2, across(limit[0]), bottom, "zero")
    axis(drawing, across, bottom, words)
    drawing.height = bottom + 22
    return drawing


def spans(rows: Sequence[SpanRow], words: Callable[[float], str]) -> Drawing | None:
    """Draw percentiles as dots on a line, on one scale from 0; None for no rows."""
    rows = [row for row in rows if row.values]
    if not rows:
        return None
    across = scale([value for row in rows for value in row.values], zero=True)
    says = (f"{row.of}, {row.whose}: {', '.join(map(words, row.values))}" for row in rows)
    drawing = Drawing(height=0, says="; ".join(says))
    tops = _tops(drawing, rows)
    bottom = drawing.height
    for row, top in zip(rows, tops, strict=True):
        middle = top + 22
        _name(
            drawing, top, f"{_short(row.whose)}: {words(row.values[0])} to {words(row.values[-1])}"
        )
        drawing.line(
            across(row.values[0]), middle, across(row.values[-1]), middle, f"span {row.style}"
        )
        for value in row.values:
            drawing.dot(across(value), middle, f"bar {row.style}", 3.5)
    axis(drawing, across, bottom, words)
    drawing.height = bottom + 22
    return drawing


def _tops(drawing: Drawing, rows: Sequence[BarRow | SpanRow]) -> list[float]:
    """Write the heading of each group of rows; return each row's place. Sets the height."""
    tops: list[float] = []
    of: str | None = None
    for row in rows:
        if row.of != of:
            of = row.of
            drawing.text(1, drawing.height + 14, _short(of), "label")
            drawing.height += HEADING_HEIGHT
        tops.append(drawing.height)
        drawing.height += ROW_HEIGHT
    return tops


def _name(drawing: Drawing, top: float, text: str) -> None:
    drawing.text(1, top + 12, text, "tick")


def _short(name: str) -> str:
    """Return a name that fits a narrow screen; the table beside a chart has it whole."""
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…"


def strips(several: Sequence[Strip], words: Callable[[float], str], label: str) -> Drawing | None:
    """Draw lines over the same seconds, one strip above the other; None if nothing is drawn.

    `label` is the label of the time axis.
    """
    several = [strip for strip in several if any(line.points for line in strip.lines)]
    if not several:
        return None
    every = [point for strip in several for line in strip.lines for point in line.points]
    across = Scale(0.0, max(at for at, _ in every) or 1.0)
    bottom = STRIP_HEIGHT * len(several)
    drawing = Drawing(height=bottom + 38, says="; ".join(strip.label for strip in several))
    for at, strip in enumerate(several):
        top = at * STRIP_HEIGHT
        drawing.text(1, top + 13, _short(strip.label), "tick")
        most = max(value for line in strip.lines for _, value in line.points) or 1.0
        for line in strip.lines:
            places = " ".join(
                f"{across(second):.1f},{100 - 100 * value / most:.0f}"
                for second, value in line.points
            )
            drawing.path(top + 18, STRIP_HEIGHT - 24, places, f"path {line.style}")
        drawing.line(
            across.left, top + STRIP_HEIGHT - 5, across.right, top + STRIP_HEIGHT - 5, "axis"
        )
    axis(drawing, across, bottom, words)
    drawing.text(50, bottom + 32, label, "tick", "middle")
    return drawing


def axis(drawing: Drawing, across: Scale, top: float, words: Callable[[float], str]) -> None:
    """Draw the scale's line, with a label at each round value."""
    drawing.line(across.left, top, across.right, top, "axis")
    for at in across.ticks(4):
        place = across(at)
        drawing.line(place, top - 4, place, top, "axis")
        anchor = "start" if place < NEAR_LEFT else "end" if place > NEAR_RIGHT else "middle"
        drawing.text(place, top + 15, words(at), "tick", anchor)


def share(value: float) -> str:
    """Return a change in readable form."""
    return f"{value:+.1%}" if value else "0%"


def figure(value: float, unit: str = "") -> str:
    """Return a figure with its unit."""
    if unit == "s" and abs(value) < 1:
        return f"{value * 1000:.4g} ms"
    digits = f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004
    return f"{digits} {unit}".rstrip()


def seconds(value: float) -> str:
    """Return seconds in readable form."""
    return figure(value, "s") if value else "0 s"


def plain(value: float) -> str:
    """Return a figure without a unit."""
    return figure(value)


def percent(value: float) -> str:
    """Return a share (0 to 1) as percent."""
    return f"{value:.3g}" if abs(value) < 1e-3 and value else f"{value:.1%}"  # noqa: PLR2004
