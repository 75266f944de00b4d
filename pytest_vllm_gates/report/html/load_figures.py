"""The load gate's figures: latencies, rates, the queue and the KV cache, and the ramp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html import charts
from pytest_vllm_gates.report.html.charts import BarRow, SpanRow, Strip, StripLine
from pytest_vllm_gates.report.html.drawing import first, listing, mapping, spread
from pytest_vllm_gates.report.html.panels import NONE, Chart, Panel, cells, columns, known, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.report.html.drawing import Drawing, TextLimits
    from pytest_vllm_gates.report.html.panels import Side

GATE = "load"
LATENCIES = {
    "ttft_s": "TTFT, time to the first token",
    "itl_s": "ITL, time between tokens",
    "tpot_s": "TPOT, time per output token of a request",
    "e2e_s": "E2E, time to the last token",
}
PERCENTILES = ("p50", "p90", "p99")
RATES = {
    "output_tokens_per_s": "output tokens/s",
    "requests_per_s": "requests/s",
    "goodput_per_s": "goodput, requests/s within the limits",
}
SERVED = {
    "running": ("most running", charts.plain),
    "waiting": ("most in the queue", charts.plain),
    "kv_usage": ("most of the KV cache in use", charts.percent),
    "preempted": ("preemptions", charts.plain),
    "cached_tokens": ("prompt tokens found in the cache", charts.plain),
}
DRAWN = ("waiting", "kv_usage", "preempted")
LOOKED_AT = (("running", charts.plain), ("in the queue", charts.plain),
             ("KV cache in use", charts.percent))  # fmt: skip
LOOK_LENGTH = 4

Phases = dict[str, dict[str, Any]]


def panels(several: tuple[Side, ...], limits: TextLimits) -> Iterator[Panel]:
    """Yield the panels of the load gate's records on each lane."""
    figures = [_phases(side.evidence(GATE, "figures")) for side in several]
    served = [_phases(side.evidence(GATE, "server")) for side in several]
    if any(figures):
        yield from _latencies(several, figures, limits)
        yield from _rates(several, figures, limits)
    if any(served):
        yield _served(several, served, limits)
    yield from _ramps(several, limits)


def _phases(record: Any) -> Phases:
    return {str(name): mapping(values) for name, values in mapping(record).items()}


def _listed(found: list[Phases], limits: TextLimits) -> tuple[list[str], int]:
    return first(names(found), limits.items)


def _latencies(
    several: tuple[Side, ...], found: list[Phases], limits: TextLimits
) -> Iterator[Panel]:
    phases, left_out = _listed(found, limits)
    drawn, rows = [], []
    for name, called in LATENCIES.items():
        spans = []
        for phase in phases:
            shares = [mapping(of.get(phase, {}).get(name)) for of in found]
            values = [tuple(known(each.get(share)) for each in shares) for share in PERCENTILES]
            if any(value is not None for each in values for value in each):
                rows.append((f"{name.removesuffix('_s').upper()}, {phase}",
                             *cells(values, charts.seconds)))  # fmt: skip
            spans += [
                SpanRow(
                    phase,
                    side.name,
                    side.style,
                    tuple(value for each in values if (value := each[at]) is not None),
                )
                for at, side in enumerate(several)
            ]
        if drawing := charts.spans(spans, charts.seconds):
            drawn.append(Chart(f"{called}: p50, p90 and p99", drawing))
    if rows:
        yield Panel(
            "Latencies under load",
            "Measured from the planned sending time of a request. The dots are p50, p90 and p99.",
            tuple(drawn),
            ("figure and load", *columns(PERCENTILES, several)), tuple(rows), left_out,
        )  # fmt: skip


def _rates(several: tuple[Side, ...], found: list[Phases], limits: TextLimits) -> Iterator[Panel]:
    phases, left_out = _listed(found, limits)

    def values(phase: str, name: str) -> tuple[float | None, ...]:
        return tuple(known(of.get(phase, {}).get(name)) for of in found)

    drawn = [
        Chart(called, drawing)
        for name, called in RATES.items()
        if (drawing := _bars(several, [(phase, values(phase, name)) for phase in phases],
                             charts.plain))
    ]  # fmt: skip
    rows = [
        (phase, *cells([values(phase, name) for name in RATES], charts.plain)) for phase in phases
    ]
    if drawn:
        yield Panel(
            "Tokens and goodput",
            "Goodput counts the requests that stayed within the limits of the plan.",
            tuple(drawn), ("load", *columns(RATES.values(), several)), tuple(rows), left_out,
        )  # fmt: skip


def _served(several: tuple[Side, ...], found: list[Phases], limits: TextLimits) -> Panel:
    phases, left_out = _listed(found, limits)

    def values(phase: str, name: str) -> tuple[float | None, ...]:
        return tuple(known(of.get(phase, {}).get(name)) for of in found)

    rows = []
    for phase in phases:
        row = [phase]
        for name, (_, words) in SERVED.items():
            row += cells([values(phase, name)], words)
        rows.append(tuple(row))
    drawn = [
        Chart(called, drawing)
        for name in DRAWN
        for called, words in (SERVED[name],)
        if (drawing := _bars(several, [(phase, values(phase, name)) for phase in phases], words))
    ]
    drawn += _over_time(several, limits)
    return Panel(
        "Queue, KV cache and preemptions",
        "From the server's own metrics during each load.",
        tuple(drawn),
        ("load", *columns((called for called, _ in SERVED.values()), several)),
        tuple(rows), left_out,
    )  # fmt: skip


def _over_time(several: tuple[Side, ...], limits: TextLimits) -> Iterator[Chart]:
    """Yield each load's queue and cache over its seconds, which show a queue that grows."""
    looks = [mapping(side.evidence(GATE, "looks")) for side in several]
    for phase in first(names(looks), limits.items)[0]:
        strips = []
        for place, (called, words) in enumerate(LOOKED_AT, 1):
            lines = [
                StripLine(side.style, _points(of.get(phase), place, limits))
                for side, of in zip(several, looks, strict=True)
            ]
            most = max((value for line in lines for _, value in line.points), default=None)
            if most is not None:
                strips.append(Strip(f"{called}, {words(most)} at most", tuple(lines)))
        if drawing := charts.strips(strips, charts.seconds, "seconds since the load began"):
            yield Chart(f"{phase}, over its time", drawing)


def _points(record: Any, place: int, limits: TextLimits) -> tuple[tuple[float, float], ...]:
    looks = [
        values
        for look in map(listing, listing(record))
        if len(look) == LOOK_LENGTH and None not in (values := [known(value) for value in look])
    ]
    return tuple((look[0] or 0.0, look[place] or 0.0) for look in spread(looks, limits.marks))


def _ramps(several: tuple[Side, ...], limits: TextLimits) -> Iterator[Panel]:
    ramps = [mapping(side.evidence(GATE, "ramp")) for side in several]
    rows: list[tuple[str, ...]] = []
    left_out = 0
    for side, ramp in zip(several, ramps, strict=True):
        steps, more = first(map(mapping, listing(ramp.get("steps"))), limits.items)
        left_out += more
        for step in steps:
            rate, achieved, ttft_s = (
                known(step.get(name)) for name in ("rate", "achieved", "ttft_p95_s")
            )
            rows.append((
                side.name, *(NONE if value is None else charts.plain(value)
                             for value in (rate, achieved)),
                NONE if ttft_s is None else charts.seconds(ttft_s),
                str(step.get("limit") or "kept"),
            ))  # fmt: skip
    kept = [
        BarRow("requests/s", side.name, side.style, capacity)
        for side, ramp in zip(several, ramps, strict=True)
        if (capacity := known(ramp.get("capacity_requests_per_s"))) is not None
    ]
    drawing = charts.bars(kept, charts.plain)
    if rows:
        yield Panel(
            "The highest sustained rate", "Requests per second at increasing rates (--ramp).",
            (Chart("Sustained requests/s", drawing),) if drawing else (),
            ("lane", "offered, requests/s", "kept, requests/s", "TTFT p95", "limit"),
            tuple(rows), left_out,
        )  # fmt: skip


def _bars(
    several: tuple[Side, ...],
    rows: list[tuple[str, tuple[float | None, ...]]],
    words: Callable[[float], str],
) -> Drawing | None:
    return charts.bars(
        [
            BarRow(name, side.name, side.style, value)
            for name, values in rows
            for side, value in zip(several, values, strict=True)
            if value is not None
        ],
        words,
    )
