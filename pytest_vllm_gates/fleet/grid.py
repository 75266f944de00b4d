"""A fleet's verdict as a page of Markdown: the reasons, and families by lanes and features."""

from __future__ import annotations

import os
from collections import defaultdict
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

MISSING = "no verdict"


def page(plan: FleetPlan, fleet: FleetVerdict, again: str, base: Path) -> str:
    """Return the page; links to the shards' reports start from the folder `base`."""
    verdict = fleet.verdict
    lines = [f"# {verdict.promotion}: {len(plan.shards)} shards", ""]
    lines += [f"- {inline(reason)}" for reason in verdict.reasons]
    if again:
        lines += ["", "Run what is missing, then merge again:", "", f"    {again}"]
    for title, sentences in (
        ("Ran more than once", fleet.doubled),
        ("Left out", fleet.foreign),
        ("Alarms that are not clear enough among so many", fleet.corrected),
        ("Known defects that stand", verdict.standing),
    ):
        if sentences:
            lines += ["", f"## {title}", "", *(f"- {inline(sentence)}" for sentence in sentences)]
    lines += ["", "## Families by lane", "", *_grid(plan, fleet, base)]
    return "\n".join(lines) + "\n"


def _grid(plan: FleetPlan, fleet: FleetVerdict, base: Path) -> list[str]:
    columns = list(dict.fromkeys((shard.lane, shard.features) for shard in plan.shards))
    families = list(dict.fromkeys(shard.family for shard in plan.shards))
    titles = [f"{lane} with {features}" if features else lane for lane, features in columns]
    lines = [
        f"| family | {' | '.join(map(inline, titles))} |",
        f"| --- |{' --- |' * len(columns)}",
    ]
    gates = {(gate.family, gate.gate): gate for gate in fleet.verdict.gates}
    by_place: dict[tuple[str, str, str], list[Shard]] = defaultdict(list)
    for shard in plan.shards:
        by_place[shard.place].append(shard)
    for family in families:
        cells = []
        for lane, features in columns:
            shards = by_place[lane, features, family]
            cells.append(
                "<br>".join(_shard(shard, fleet, gates, base) for shard in shards) or "not planned"
            )
        lines.append(f"| {inline(family)} | {' | '.join(cells)} |")
    return lines


def _shard(
    shard: Shard, fleet: FleetVerdict, by_name: Mapping[tuple[str, str], GateResult], base: Path
) -> str:
    """Return the worst outcome of a shard's gates, and which they are, linked to its report."""
    report = fleet.reports.get(shard.name)
    if report is None:
        return f"{MISSING} ({shard.name})"
    keys = ((label(shard), name) for name in shard.gates)
    gates = [by_name[key] for key in keys if key in by_name]
    worst = next((each for each in SEVERITY if any(gate.outcome is each for gate in gates)), None)
    names = [gate.gate for gate in gates if gate.outcome is worst]
    said = f"{worst}: {', '.join(names)}" if worst in SEVERITY[:4] else str(worst or "nothing ran")
    target = os.path.relpath(report.folder / "report.html", base)
    return f"[{said}]({target})"
