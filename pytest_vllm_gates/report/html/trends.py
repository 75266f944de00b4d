"""The main figures over a project's runs: small line charts, and a table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html.drawing import Drawing, Scale, listing, mapping, number, scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits

HEIGHT = 64
MOST_FIGURES = 12
TWO = 2


@dataclass(frozen=True)
class TrendChart:
    """One figure."""

    name: str
    drawing: Drawing
    last: str


@dataclass(frozen=True)
class Trends:
    """All figures, and the runs they come from."""

    trends: tuple[TrendChart, ...]
    names: tuple[str, ...]
    rows: tuple[tuple[str, str, str, str, tuple[str, ...]], ...]
    """When, lane, vLLM, promotion, and the figures by name."""
    left_out: int


def trends(document: Mapping[str, Any], limits: TextLimits) -> Trends | None:
    """Return the trends; None with fewer than two runs."""
    every = [mapping(run) for run in listing(document.get("history"))]
    runs = every[-min(limits.items, 60) :]
    if len(runs) < TWO:
        return None
    names = list(dict.fromkeys(name for run in runs for name in mapping(run.get("figures"))))
    names = names[: min(MOST_FIGURES, limits.items)]
    charts = [trend for name in names if (trend := _trend(name, runs))]
    return Trends(
        trends=tuple(charts),
        names=tuple(names),
        rows=tuple(
            (
                str(run.get("created", "")),
                str(run.get("lane", "")),
                str(mapping(run.get("versions")).get("vllm", "")),
                str(run.get("promotion", "")),
                tuple(_shown(number(mapping(run.get("figures")).get(name))) for name in names),
            )
            for run in reversed(runs)
        ),
        left_out=len(every) - len(runs),
    )


def _trend(name: str, runs: list[dict[str, Any]]) -> TrendChart | None:
    points = [
        (at, value, str(run.get("lane", "")))
        for at, run in enumerate(runs)
        if (value := number(mapping(run.get("figures")).get(name))) is not None
    ]
    if len(points) < TWO:
        return None
    across = Scale(0, len(runs) - 1, left=3, right=97)
    values = [value for _, value, _ in points]
    up = scale(values)
    first, last = points[0], points[-1]
    summary = (
        f"{name}: {_shown(first[1])} at first, {_shown(last[1])} now, "
        f"between {_shown(min(values))} and {_shown(max(values))} over {len(points)} runs"
    )
    drawing = Drawing(height=HEIGHT, says=summary)
    drawing.line(across.left, HEIGHT - 6, across.right, HEIGHT - 6, "axis")
    lanes = dict.fromkeys(lane for _, _, lane in points)
    for lane in lanes:
        own = [(at, value) for at, value, of in points if of == lane]
        style = "trend" if lane == last[2] else "trend-other"
        for (at, value), (to, then) in itertools.pairwise(own):
            drawing.line(across(at), _y(up, value), across(to), _y(up, then), style)
        for at, value in own:
            drawing.dot(across(at), _y(up, value), style, 2.5)
    drawing.dot(across(last[0]), _y(up, last[1]), "estimate", 4)
    return TrendChart(name, drawing, _shown(last[1]))


def _y(up: Scale, value: float) -> float:
    return round((HEIGHT - 10) * (1 - up(value) / 100) + 2, 1)


def _shown(value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004
