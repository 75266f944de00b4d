"""The gates of each family, and each failure with what was seen of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html import memory, prompts, streams, throughput
from pytest_vllm_gates.report.html.bounds import first, listing, mapping, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.report.html.bounds import Limits

BAD = ("FAIL", "BLOCKED", "MISSING", "INCONCLUSIVE")
"""What keeps a bundle back, by weight."""
SHOWN_ELSEWHERE = ("known_defects", "known_defects_gone")


@dataclass(frozen=True)
class Lanes:
    """Both lanes' documents, and where they lie."""

    ours: Mapping[str, Any]
    theirs: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def names(self) -> tuple[str, str]:
        """What the lanes are called."""
        theirs = mapping(self.theirs.get("lane")) if self.theirs else {}
        return str(mapping(self.ours.get("lane")).get("name", "this lane")), str(
            theirs.get("name", "the other lane")
        )


@dataclass
class Entry:
    """Tests of one gate that came to the same, with what was seen."""

    anchor: str
    title: str
    tests: list[str]
    outcome: str
    reason: str
    duration_s: float
    reproduce: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    diff: prompts.TokenDiff | None = None
    timeline: streams.Timeline | None = None
    speed: throughput.Comparison | None = None
    memory: memory.Memory | None = None
    incidents: list[str] = field(default_factory=list)
    log: Mapping[str, Any] | None = None
    rest: list[tuple[str, str]] = field(default_factory=list)
    """The other evidence, as JSON."""


@dataclass
class Gate:
    """A gate's row."""

    name: str
    title: str
    outcome: str
    reason: str
    tests: int
    passed: int
    duration_s: float
    entries: list[Entry]
    measured: list[Entry]
    """Tests that passed and measured something worth a look."""


@dataclass
class Family:
    """A family's section."""

    name: str
    anchor: str
    checkpoint: str
    outcome: str
    boot: Mapping[str, Any]
    gates: list[Gate]
    left_out: int
    """Failures that are not laid out."""


def families(lanes: Lanes, limits: Limits) -> tuple[list[Family], int]:
    """Return the families of a run, and how many are not shown."""
    shown, left_out = first(map(mapping, listing(lanes.ours.get("families"))), limits.items)
    return [_family(at, one, lanes, limits) for at, one in enumerate(shown)], left_out


def _family(at: int, told: dict[str, Any], lanes: Lanes, limits: Limits) -> Family:
    name = str(told.get("name", "?"))
    every = [mapping(one) for one in listing(told.get("gates"))]
    gates, room = [], limits.failures
    left_out = 0
    for number_, one in enumerate(every[: limits.items]):
        gate, more = _gate(f"f{at}g{number_}", name, one, lanes, limits, room)
        room -= len(gate.entries)
        left_out += more
        gates.append(gate)
    boot = mapping(told.get("boot"))
    for gate in gates:
        for entry in gate.entries:
            if gate.name == "boot" and entry.outcome == "FAIL" and not boot.get("ok", True):
                entry.log = mapping(boot.get("explanation")) or None
                break
    outcomes = [gate.outcome for gate in gates]
    checkpoint = mapping(told.get("checkpoint"))
    return Family(
        name=name,
        anchor=f"family-{at}",
        checkpoint=str(checkpoint.get("name", "?")),
        outcome=next((one for one in BAD if one in outcomes), "PASS" if outcomes else "BLOCKED"),
        boot=boot,
        gates=gates,
        left_out=left_out,
    )


def _gate(
    anchor: str, family: str, told: dict[str, Any], lanes: Lanes, limits: Limits, room: int
) -> tuple[Gate, int]:
    name = str(told.get("gate", "?"))
    tests = [mapping(one) for one in listing(told.get("tests"))]
    groups = _grouped(one for one in tests if one.get("outcome") in BAD)
    shown, left_out = first(groups, max(0, room))
    at_once = next(
        (
            int(found)
            for one in tests
            if (found := number(mapping(one.get("evidence")).get("planned_at_once")))
        ),
        1,
    )
    measured = [
        entry
        for one in tests
        if one.get("outcome") == "PASS"
        and (entry := _entry("", family, name, [one], lanes, limits, at_once))
        and (entry.speed or entry.memory)
    ]
    return Gate(
        name=name,
        title=str(told.get("title", "")),
        outcome=str(told.get("outcome", "?")),
        reason=str(told.get("reason", "")),
        tests=len(tests),
        passed=sum(one.get("outcome") in ("PASS", "KNOWN") for one in tests),
        duration_s=number(told.get("duration_s")) or 0.0,
        entries=[
            _entry(f"{anchor}t{at}", family, name, group, lanes, limits, at_once)
            for at, group in enumerate(shown)
        ],
        measured=measured[: limits.items],
    ), left_out


def _grouped(tests: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the tests by weight, those of one outcome and reason together."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in tests:
        found.setdefault((str(one.get("outcome")), str(one.get("reason", ""))), []).append(one)
    return sorted(found.values(), key=lambda group: BAD.index(str(group[0]["outcome"])))


def _entry(
    anchor: str,
    family: str,
    gate: str,
    group: list[dict[str, Any]],
    lanes: Lanes,
    limits: Limits,
    at_once: int,
) -> Entry:
    one = group[0]
    name, evidence = str(one.get("test", "?")), mapping(one.get("evidence"))
    reason = str(one.get("reason", ""))
    entry = Entry(
        anchor=anchor,
        title=title(name, family),
        tests=[str(each.get("test", "?")) for each in group],
        outcome=str(one.get("outcome", "?")),
        reason=reason,
        duration_s=sum(number(each.get("duration_s")) or 0.0 for each in group),
        reproduce=str(one.get("reproduce", "")),
        lines=prompts.lines_with_marks(reason[: 2 * limits.text]),
        diff=prompts.token_diff(evidence, limits),
        speed=throughput.comparison(evidence, lanes.names[0], limits),
        memory=memory.memory(evidence, at_once),
    )
    entry.timeline, entry.incidents = _streams(family, gate, name, evidence, lanes, limits)
    used = {*SHOWN_ELSEWHERE}
    used |= {prompts.KEY} if entry.diff else set()
    used |= {"decision", "pairs", "blocks"} if entry.speed else set()
    used |= {"planned", "told"} if entry.memory else set()
    used |= {streams.KEY} if entry.timeline else set()
    entry.rest = [
        (key, _json(found, limits.text)) for key, found in evidence.items() if key not in used
    ][: limits.items]
    return entry


def _streams(
    family: str,
    gate: str,
    test: str,
    evidence: dict[str, Any],
    lanes: Lanes,
    limits: Limits,
) -> tuple[streams.Timeline | None, list[str]]:
    """Return what came of a test's streams on both lanes, and the incidents they are kept in."""
    where = (family, gate, test)
    bundles = _incidents(lanes.ours, where)
    ours = streams.recorded(evidence)
    if not ours and lanes.folder:
        ours = [each for path in bundles for each in streams.of_incident(lanes.folder / path)]
    theirs: list[tuple[str, list[streams.Piece]]] = []
    if lanes.theirs:
        theirs = streams.recorded(_evidence_of(lanes.theirs, where))
        if not theirs and lanes.folder:
            beside = lanes.folder / str(mapping(lanes.ours.get("against")).get("document", ""))
            paths = _incidents(lanes.theirs, where)
            theirs = [each for path in paths for each in streams.of_incident(beside.parent / path)]
    if not ours:
        return None, bundles
    if not theirs:
        return streams.timeline(ours, limits), bundles
    one, other = lanes.names
    pairs = [(f"{one}: {ours[0][0]}", ours[0][1]), (f"{other}: {theirs[0][0]}", theirs[0][1])]
    return streams.timeline(pairs, limits), bundles


def _incidents(document: Mapping[str, Any], where: tuple[str, str, str]) -> list[str]:
    return [
        str(one.get("path", ""))
        for one in map(mapping, listing(document.get("incidents")))
        if (one.get("family"), one.get("gate"), one.get("test")) == where
    ]


def _evidence_of(document: Mapping[str, Any], where: tuple[str, str, str]) -> dict[str, Any]:
    family, gate, test = where
    for one in map(mapping, listing(document.get("families"))):
        for each in map(mapping, listing(one.get("gates"))):
            if one.get("name") != family or each.get("gate") != gate:
                continue
            for found in map(mapping, listing(each.get("tests"))):
                if found.get("test") == test:
                    return mapping(found.get("evidence"))
    return {}


def title(test: str, family: str) -> str:
    """Return a test's name as a sentence: what it holds, and of which case."""
    name, _, case = test.partition("[")
    case = re.sub(rf"^{re.escape(family)}(-|$)", "", case.removesuffix("]"))
    words = name.removeprefix("test_").replace("_", " ")
    sentence = words[:1].upper() + words[1:]
    return f"{sentence}: {case}" if case else sentence


def _json(found: Any, most: int) -> str:
    """Return evidence as text; what is far too long is not laid out before it is cut."""
    if isinstance(found, str):
        return found
    text = json.dumps(found, ensure_ascii=False, default=str)
    if len(text) > most or len(text) < 100:  # noqa: PLR2004 - short enough for one line
        return text
    return json.dumps(found, ensure_ascii=False, default=str, indent=1)
