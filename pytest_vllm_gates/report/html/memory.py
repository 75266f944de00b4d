"""The memory plan against what the server reports, as stacked bars on one scale of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_vllm_gates.memory_plan.types import GIB
from pytest_vllm_gates.report.html.drawing import Drawing, Scale, mapping, number

ROW_HEIGHT = 48
BAR_HEIGHT = 20
LEAST_WIDTH = 0.5
"""Percent: the least width, so that every part is visible."""


@dataclass(frozen=True)
class BarPart:
    """One part of a bar."""

    name: str
    style: str
    size: float
    """Bytes on one device."""

    @property
    def says(self) -> str:
        """The size in readable form."""
        return size(self.size)


@dataclass(frozen=True)
class Memory:
    """Both bars, and the figures that are not sizes in bytes."""

    drawing: Drawing
    bars: tuple[tuple[str, tuple[BarPart, ...]], ...]
    figures: tuple[tuple[str, str, str], ...]
    """Name, planned value, reported value."""
    notes: tuple[str, ...]


def memory(evidence: dict[str, Any], at_once: int = 1) -> Memory | None:
    """Return the plan beside the server's report; None if a check recorded no plan.

    `at_once` is the planned number of concurrent requests of full length.
    """
    planned, reported = mapping(evidence.get("planned")), mapping(evidence.get("told"))
    if not planned or not reported:
        return None
    bars = tuple(
        (name, parts)
        for name, parts in (
            ("planned", _planned(planned, at_once)),
            ("reported by the server", _told(reported, at_once)),
        )
        if parts
    )
    if not bars:
        return None
    notes = (
        [] if number(reported.get("weights_gib")) else ["the server does not report its weights"]
    )
    return Memory(_drawing(bars), bars, tuple(_figures(planned, reported)), tuple(notes))


def _planned(plan: dict[str, Any], at_once: int) -> tuple[BarPart, ...]:
    weights = number(mapping(plan.get("weights")).get("bytes_per_device"))
    parts = _known(("weights", "weights", weights))
    parts += _known(("runtime", "runtime", number(plan.get("overhead_bytes"))))
    return parts + _cache(
        number(plan.get("kv_memory_bytes")), number(plan.get("needed_bytes")), at_once
    )


def _told(reported: dict[str, Any], at_once: int) -> tuple[BarPart, ...]:
    weights, cache = (number(reported.get(name)) for name in ("weights_gib", "kv_gib"))
    room = number(reported.get("kv_concurrency"))
    parts = _known(("weights", "weights", weights and weights * GIB))
    return parts + _cache(
        cache and cache * GIB, cache * GIB / room if cache and room else None, at_once
    )


def _cache(total: float | None, each: float | None, at_once: int) -> tuple[BarPart, ...]:
    """Return the cache in two parts: used by the planned requests, and free."""
    if not total or total < 0:
        return ()
    if each is None or each < 0:
        return _known(("KV cache", "rest", total))
    used = min(total, each * at_once)
    many = f"{at_once} requests" if at_once != 1 else "one request"
    name = f"cache of {many} of full length"
    if used < each * at_once:
        name += f" (not enough: {size(each * at_once)} are needed)"
    return _known((name, "used", used)) + _known(("rest of the cache", "rest", total - used))


def _known(part: tuple[str, str, float | None]) -> tuple[BarPart, ...]:
    name, style, count = part
    return (BarPart(name, style, count),) if count and count > 0 else ()


def _drawing(bars: tuple[tuple[str, tuple[BarPart, ...]], ...]) -> Drawing:
    largest = max(sum(part.size for part in parts) for _, parts in bars)
    across = Scale(0.0, largest)
    drawing = Drawing(
        height=ROW_HEIGHT * len(bars),
        says=". ".join(
            f"{name}: " + ", ".join(f"{part.name} {part.says}" for part in parts)
            for name, parts in bars
        ),
    )
    for at, (name, parts) in enumerate(bars):
        top = at * ROW_HEIGHT
        total = sum(part.size for part in parts)
        drawing.text(1, top + 14, f"{name}, {size(total)}", "label")
        begin = 0.0
        for part in parts:
            left, right = across(begin), across(begin + part.size)
            drawing.rect(left, top + 20, max(LEAST_WIDTH, right - left), BAR_HEIGHT, part.style)
            begin += part.size
    return drawing


def _figures(planned: dict[str, Any], reported: dict[str, Any]) -> list[tuple[str, str, str]]:
    pool = mapping(planned.get("pool"))
    rows = [
        ("tokens that fit in the KV cache", pool.get("tokens"), reported.get("kv_tokens"), ",.0f"),
        (
            "requests of full length at once",
            pool.get("concurrency"), reported.get("kv_concurrency"), ",.2f",
        ),
    ]  # fmt: skip
    figures = []
    for name, expected, actual, form in rows:
        ours, theirs = number(expected), number(actual)
        if ours is not None or theirs is not None:
            figures.append((name, _figure(ours, form), _figure(theirs, form)))
    return figures


def _figure(value: float | None, form: str) -> str:
    return "not known" if value is None else format(value, form)


def size(count: float) -> str:
    """Return bytes in readable form."""
    for unit, of in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= of:
            return f"{count / of:.2f} {unit}"
    return f"{count:.0f} bytes"
