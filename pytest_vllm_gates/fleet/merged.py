"""One verdict from the reports of a plan's shards.

Missing, doubled, contradictory and foreign reports are listed and block the promotion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.fleet.alarms import corrected
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.verdict.verdict import SEVERITY, Verdict, decide

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from pytest_vllm_gates.fleet.reports import ShardReport
    from pytest_vllm_gates.fleet.shards import FleetPlan, Shard

NOT_OF_THIS_PLAN = "is of another plan"


@dataclass(frozen=True)
class FleetVerdict:
    """The fleet's verdict, and the faults of its parts."""

    verdict: Verdict
    missing: tuple[Shard, ...] = ()
    doubled: tuple[str, ...] = ()
    """A sentence for each shard that ran more than once."""
    foreign: tuple[str, ...] = ()
    """A sentence for each report that was left out."""
    reports: dict[str, ShardReport] = field(default_factory=dict)
    """The report that counts, by its shard's name."""
    corrected: tuple[str, ...] = ()
    """A sentence for each alarm that is not clear enough among so many gates."""


def merge(plan: FleetPlan, found: Iterable[ShardReport]) -> FleetVerdict:
    """Return the fleet's verdict; `label` names its families."""
    known = {shard.name: shard for shard in plan.shards}
    by_shard: dict[str, list[ShardReport]] = defaultdict(list)
    foreign = []
    for report in found:
        if why := _why_foreign(report, plan, known):
            foreign.append(f"{report.folder}: {why}")
        elif report.record:
            by_shard[report.record.shard].append(report)
    foreign += _of_another_bundle(by_shard, known)
    missing = tuple(shard for shard in plan.shards if not by_shard.get(shard.name))
    doubled = []
    results: list[TestResult] = []
    counted: dict[str, ShardReport] = {}
    for shard in plan.shards:
        reports = sorted(by_shard.get(shard.name, ()), key=_created)
        if not reports:
            continue
        counted[shard.name] = reports[-1]
        together = _together(shard, reports)
        results += together
        if len(reports) > 1:
            doubled.append(_doubled(shard, reports))
    results, sentences = corrected(results)
    verdict = decide(
        results,
        _expected(plan, counted),
        not_applicable=_not_applicable(counted, known),
        holds=[
            *(f"{shard.name}: no verdict" for shard in missing),
            *(sentence for sentence in doubled if CONTRADICTORY in sentence),
            *(f"left out: {sentence}" for sentence in foreign),
        ],
    )
    return FleetVerdict(verdict, missing, tuple(doubled), tuple(foreign), counted, tuple(sentences))


def label(shard: Shard) -> str:
    """Return a family's name in a fleet's verdict: with its lane and features."""
    features = f" with {shard.features}" if shard.features else ""
    return f"{shard.family} on {shard.lane}{features}"


def _expected(plan: FleetPlan, counted: Container[str]) -> dict[str, list[str]]:
    """Return the gates of each label that must have a result.

    A shard without a verdict blocks by itself, and its gates are not listed one by one.
    """
    expected: dict[str, list[str]] = defaultdict(list)
    for shard in plan.shards:
        if shard.name in counted:
            expected[label(shard)] += shard.gates
    return expected


def _why_foreign(report: ShardReport, plan: FleetPlan, known: dict[str, Shard]) -> str:
    record = report.record
    if record is None:
        return "no shard.json beside its verdict: it was not run by `vllm-gates shard`"
    if record.plan != plan.digest:
        return f"{NOT_OF_THIS_PLAN}: {record.plan[:12]}, and this one is {plan.digest[:12]}"
    tool = report.verdict.tool.version
    if tool != plan.suite:
        return f"was run by version {tool} of the gates, and planned by version {plan.suite}"
    shard = known.get(record.shard)
    if shard is None:
        return f"the plan has no shard {record.shard!r}"
    lane = report.verdict.lane.name
    families = {family.name for family in report.verdict.families}
    if lane != shard.lane or families != {shard.family}:
        return (
            f"judges {', '.join(sorted(families)) or 'nothing'} on {lane}: it is not {shard.name}"
        )
    return ""


def _of_another_bundle(
    by_shard: dict[str, list[ShardReport]], known: dict[str, Shard]
) -> list[str]:
    """Remove the reports whose lane's packages or flags differ from most; return the reasons."""
    by_lane: dict[str, list[ShardReport]] = defaultdict(list)
    for name, reports in by_shard.items():
        by_lane[known[name].lane] += reports
    sentences = []
    for lane, reports in by_lane.items():
        bundles = Counter(map(_bundle, reports))
        usual = max(bundles, key=lambda bundle: (bundles[bundle], bundle))
        for report in reports:
            if (bundle := _bundle(report)) != usual and report.record:
                by_shard[report.record.shard].remove(report)
                own, others = set(bundle), set(usual)
                differs = sorted(own - others)[:1] or sorted(others - own)[:1]
                sentences.append(
                    f"{report.folder}: its bundle differs from {bundles[usual]} of {len(reports)} "
                    f"shards of lane {lane}: {differs[0][0]} is {differs[0][1] or 'missing'}"
                )
    return sentences


def _bundle(report: ShardReport) -> tuple[tuple[str, str], ...]:
    lane = report.verdict.lane
    parts = {**lane.versions, **{f"--{name}": value for name, value in lane.serve.items()}}
    return tuple(sorted((name, str(value)) for name, value in parts.items()))


def _together(shard: Shard, reports: Sequence[ShardReport]) -> list[TestResult]:
    """Return each test's result; the worst of several."""
    worst: dict[tuple[str, str], TestResult] = {}
    for report in reports:
        for result in report.verdict.results():
            if result.gate not in shard.gates:
                continue
            key = result.gate, result.test
            if key not in worst or _rank(result) < _rank(worst[key]):
                worst[key] = replace(result, family=label(shard))
    return [*worst.values()]


def _rank(result: TestResult) -> int:
    return SEVERITY.index(result.outcome)


CONTRADICTORY = "they contradict one another"


def _doubled(shard: Shard, reports: Sequence[ShardReport]) -> str:
    outcomes = [
        {(result.gate, result.test): result.outcome for result in report.verdict.results()}
        for report in reports
    ]
    folders = ", ".join(str(report.folder) for report in reports)
    for key in outcomes[0]:
        seen = [str(each.get(key, "not run")) for each in outcomes]
        if len({*seen}) > 1:
            return (
                f"{shard.name} ran {len(reports)} times, and {CONTRADICTORY}: {': '.join(key)} is "
                f"{', then '.join(seen)}; the worst counts ({folders})"
            )
    return f"{shard.name} ran {len(reports)} times, with one result ({folders})"


def _created(report: ShardReport) -> tuple[str, str]:
    return report.verdict.created, str(report.folder)


def _not_applicable(
    counted: dict[str, ShardReport], known: dict[str, Shard]
) -> dict[tuple[str, str], str]:
    return {
        (label(known[name]), gate.gate): gate.reason
        for name, report in counted.items()
        for family in report.verdict.families
        for gate in family.gates
        if gate.outcome == Outcome.NOT_APPLICABLE and not gate.tests
    }


def document(plan: FleetPlan, fleet: FleetVerdict) -> dict[str, Any]:
    """Return the merged verdict as JSON; it does not depend on where or when shards ran."""
    verdict = fleet.verdict
    cells: dict[str, dict[str, Any]] = {}
    for shard in plan.shards:
        cell = cells.setdefault(
            label(shard),
            {"family": shard.family, "lane": shard.lane, "features": shard.features,
             "gates": {}, "shards": []},
        )  # fmt: skip
        cell["shards"].append(shard.name)
    for gate in verdict.gates:
        cells[gate.family]["gates"][gate.gate] = {
            "outcome": gate.shown_outcome,
            "reason": gate.reason,
            "tests": {test.test: str(test.outcome) for test in gate.tests},
        }
    return {
        "format": "pytest-vllm-gates/fleet-verdict",
        "version": 1,
        "plan": plan.digest,
        "suite": plan.suite,
        "promotion": str(verdict.promotion),
        "reasons": list(verdict.reasons),
        "known_defects": {"standing": list(verdict.standing), "gone": list(verdict.gone)},
        "missing": [shard.name for shard in fleet.missing],
        "doubled": list(fleet.doubled),
        "foreign": list(fleet.foreign),
        "corrected": list(fleet.corrected),
        "cells": [*cells.values()],
    }
