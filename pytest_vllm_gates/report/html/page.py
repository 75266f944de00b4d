"""Composes the report as one file without network access, below a fixed size.

Its one script searches, filters and copies; everything can be read without it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.report.html import gate_pages, links, sections
from pytest_vllm_gates.report.html.bisection import bisection
from pytest_vllm_gates.report.html.causes import causes
from pytest_vllm_gates.report.html.drawing import TextLimits, clean, cut, listing, mapping
from pytest_vllm_gates.report.html.families import families
from pytest_vllm_gates.report.html.sections import Lanes
from pytest_vllm_gates.report.html.trends import trends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from pytest_vllm_gates.report.html.families import FamilySection

NAME = "report.html"
HERE = Path(__file__).parent
FEW_CHARACTERS, FEW_LINES = 200, 4
OWN = ("style.css", "script.js")
MOST_BYTES = 1_900_000
"""A page stays below 2 MB, and names the parts that were cut."""


def write(
    folder: Path, document: Mapping[str, Any], other: Mapping[str, Any] | None = None
) -> Path:
    """Write `report.html` into `folder`, whole or not at all; return its path.

    Raises `WriteError`.
    """
    path = folder / NAME
    write_whole(path, compose(document, other, folder=folder))
    return path


def compose(
    document: Mapping[str, Any],
    other: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
) -> str:
    """Return the page of a verdict's document.

    `other` is the document of the lane it was compared with. `folder` is the report's folder, which
    may contain recorded streams of incidents. Less is shown until the page is small enough.
    """
    lanes = Lanes(document, other, folder)
    limits = TextLimits()
    page = _render(lanes, limits)
    if len(page.encode()) > MOST_BYTES:
        limits = limits.with_few_passed()  # failures matter most to the reader
        page = _render(lanes, limits)
    while (size := len(page.encode())) > MOST_BYTES and not limits.least:
        # Half of each limit cuts the page to about a quarter: fewer rows, and shorter cells.
        for _ in range(max(1, round(math.log2(size / MOST_BYTES) / 2))):
            limits = limits.halved()
        page = _render(lanes, limits)
    return page


def _render(lanes: Lanes, limits: TextLimits) -> str:
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in OWN)
    document = lanes.ours
    listed, left_out = families(lanes, limits)
    gates = list(dict.fromkeys(gate.name for section in listed for gate in section.gates))
    about = gate_pages.pages(gates)
    known = mapping(document.get("known_defects"))
    return (
        _environment(limits)
        .get_template("page.html")
        .render(
            style=style,
            script=script,
            # Only exactly these texts are allowed, never text from a server's output.
            style_hash=_hash(style),
            script_hash=_hash(script),
            head=sections.head(document),
            reasons=_few(terminal.reasons(listing(document.get("reasons"))), limits),
            next=_few(document.get("next"), limits),
            notes=_few(document.get("notes"), limits),
            rollback=mapping(document.get("rollback")) or None,
            repro=mapping(document.get("repro")) or None,
            waivers=[mapping(waiver) for waiver in listing(document.get("waivers"))][
                : limits.items
            ],
            bisection=bisection(document, limits),
            bundle=sections.bundle(document, limits),
            comparison=sections.comparison(document, limits),
            families=listed,
            families_left_out=left_out,
            gates=gates,
            gate_pages=about,
            about={each.gate: each.anchor for each in about},
            filters=_filters(listed, gates, limits),
            causes=causes(document, limits),
            standing=_few(known.get("standing"), limits),
            gone=_few(known.get("gone"), limits),
            trends=trends(document, limits),
            facts=sections.facts(document, limits),
        )
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _filters(
    listed: Sequence[FamilySection], gates: Sequence[str], limits: TextLimits
) -> list[tuple[str, list[str]]]:
    """Return the filters for tests, each with its values."""
    outcomes = {
        group.outcome
        for section in listed
        for gate in section.gates
        for group in (*gate.entries, *gate.others)
    }
    return [
        ("family", list(dict.fromkeys(section.name for section in listed))),
        ("gate", list(gates[: limits.items])),
        ("outcome", sorted(outcomes)[: limits.items]),
    ]


def _few(sentences: Any, limits: TextLimits) -> list[str]:
    """Return the first sentences, and a note with the number of others."""
    texts = [str(sentence) for sentence in listing(sentences)]
    more = len(texts) - limits.items
    return [*texts[: limits.items], *([f"and {more:,} more, in verdict.json"] if more > 0 else [])]


@lru_cache(maxsize=16)
def _environment(limits: TextLimits) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - heavy
    from markupsafe import Markup  # noqa: PLC0415

    def finalize(value: Any) -> Any:
        """Limit and clean everything that a template writes."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return clean(cut(value, limits.text))
        return value

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = lambda value: cut(value, limits.line)
    environment.filters["ticks"] = lambda value: _ticks(finalize(value))
    environment.filters["issues"] = lambda value: links.with_issues(value, finalize)
    stop = Markup(' tabindex="0"')
    environment.filters["tabstop"] = lambda text: stop if _scrolls(text) else ""
    environment.filters["own"] = Markup  # the style sheet, the script, the places of a line
    return environment


def _scrolls(text: str) -> bool:
    """Return whether a text may be higher than its box, at least on a narrow screen.

    Only text that scrolls gets the keyboard's focus: a report has thousands of short texts.
    """
    return len(text) > FEW_CHARACTERS or text.count("\n") > FEW_LINES


def _ticks(text: str) -> Markup:
    """Return a sentence with the text between backticks as code."""
    from markupsafe import Markup  # noqa: PLC0415

    parts = text.split("`")
    even = len(parts) % 2  # an even number of backticks
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 and (even or at < len(parts) - 1) else part
        for at, part in enumerate(parts)
    )
