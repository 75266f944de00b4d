"""A fleet's verdict as Markdown: the reasons, and families by lanes and features."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vllm_gates.fleet.merged import label
from pytest_vllm_gates.report.markdown import inline
from pytest_vllm_gates.verdict.verdict import SEVERITY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.fleet.merged import FleetVerdict
    from pytest_vllm_gates.fleet.shards import FleetPlan, Shard
    from pytest_vllm_gates.verdict.verdict import GateResult

MISSING, NOT_PLANNED = "no verdict", "not planned"


def page(plan: FleetPlan, fleet: FleetVerdict, again: str, base: Path) -> str:
    """Return the page; links to the shards' reports start from the folder `base`."""
    verdict = fleet.verdict
    lines = [f"# {verdict.promotion}: {len(plan.shards)} shards", ""]
    lines += [f"- {inline(reason)}" for reason in verdict.reasons]
    if again:
        lines += ["", "Run what is missing, then merge again:", "", f"    {again}"]
    for title, sentences in notes(fleet):
        lines += ["", f"## {title}", "", *(f"- {inline(sentence)}" for sentence in sentences)]
    lines += ["", "## Families by lane", "", *_grid(plan, fleet, base)]
    return "\n".join(lines) + "\n"


def notes(fleet: FleetVerdict) -> list[tuple[str, tuple[str, ...]]]:
    """Return the other notes: titles, and sentences below each."""
    found = [
        ("Ran more than once", fleet.doubled),
        ("Left out", fleet.foreign),
        ("Alarms that are not clear enough among so many", fleet.corrected),
        ("Known defects that still occur", tuple(fleet.verdict.standing)),
    ]
    return [(title, sentences) for title, sentences in found if sentences]


def _grid(plan: FleetPlan, fleet: FleetVerdict, base: Path) -> list[str]:
    grid = cells(plan, fleet, base)
    lines = [
        f"| family | {' | '.join(map(inline, grid.columns))} |",
        f"| --- |{' --- |' * len(grid.columns)}",
    ]
    for family, row in grid.rows.items():
        texts = ["<br>".join(map(_text, cell)) or NOT_PLANNED for cell in row]
        lines.append(f"| {inline(family)} | {' | '.join(texts)} |")
    return lines


def _text(cell: GridCell) -> str:
    return f"[{cell.said}]({cell.target})" if cell.target else cell.said


@dataclass(frozen=True)
class GridCell:
    """One shard as a grid shows it."""

    shard: str
    outcome: str
    """The worst outcome of its gates; empty without a verdict."""
    said: str
    """The outcome, and the gates that have it unless it is a good one."""
    target: str
    """The path of its report; empty without one."""


@dataclass(frozen=True)
class Grid:
    """Families by lanes and features."""

    columns: tuple[str, ...]
    rows: dict[str, list[list[GridCell]]]
    """By family, the shards of each column."""


def cells(plan: FleetPlan, fleet: FleetVerdict, base: Path) -> Grid:
    """Return each shard in its place; its report is found from the folder `base`."""
    columns = list(dict.fromkeys((shard.lane, shard.features) for shard in plan.shards))
    gates = {(gate.family, gate.gate): gate for gate in fleet.verdict.gates}
    by_place: dict[tuple[str, str, str], list[GridCell]] = defaultdict(list)
    for shard in plan.shards:
        by_place[shard.place].append(_cell(shard, fleet, gates, base))
    return Grid(
        tuple(f"{lane} with {features}" if features else lane for lane, features in columns),
        {
            family: [by_place[lane, features, family] for lane, features in columns]
            for family in dict.fromkeys(shard.family for shard in plan.shards)
        },
    )


def _cell(
    shard: Shard, fleet: FleetVerdict, by_name: Mapping[tuple[str, str], GateResult], base: Path
) -> GridCell:
    report = fleet.reports.get(shard.name)
    if report is None:
        return GridCell(shard.name, "", f"{MISSING} ({shard.name})", "")
    keys = ((label(shard), name) for name in shard.gates)
    gates = [by_name[key] for key in keys if key in by_name]
    worst = next((each for each in SEVERITY if any(gate.outcome is each for gate in gates)), None)
    names = [gate.gate for gate in gates if gate.outcome is worst]
    said = f"{worst}: {', '.join(names)}" if worst in SEVERITY[:4] else str(worst or "nothing ran")
    target = os.path.relpath(report.folder / "report.html", base)
    return GridCell(shard.name, str(worst or ""), said, target)
