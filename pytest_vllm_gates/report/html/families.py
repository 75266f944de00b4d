"""The report's sections by family: its gates, and each failure with its evidence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.report.html import memory as html_memory, prompts, streams, throughput
from pytest_vllm_gates.report.html.drawing import first, listing, mapping, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits
    from pytest_vllm_gates.report.html.sections import Lanes

BAD = ("FAIL", "BLOCKED", "MISSING", "INCONCLUSIVE", "WAIVED")
"""What is laid out, by weight: what keeps a bundle back, and what would but for a waiver."""
WELL = ("PASS", "KNOWN", "WAIVED")
SHOWN_ELSEWHERE = frozenset({"known_defects", "known_defects_gone"})
ONE_LINE = 100


@dataclass
class TestGroup:
    """Tests of one gate that came to the same, with what was seen."""

    anchor: str
    title: str
    tests: list[str]
    outcome: str
    reason: str
    """Its first line."""
    duration_s: float
    reproduce: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """The rest of the reason, and what each line of it is."""
    diff: prompts.TokenDiff | None = None
    timeline: streams.Timeline | None = None
    speed: throughput.ThroughputSection | None = None
    memory: html_memory.Memory | None = None
    incidents: list[str] = field(default_factory=list)
    log: Mapping[str, Any] | None = None
    rest: list[tuple[str, str]] = field(default_factory=list)
    """The other evidence, as JSON."""


@dataclass
class GateSection:
    """A gate's row."""

    name: str
    title: str
    outcome: str
    tests: int
    passed: int
    duration_s: float
    entries: list[TestGroup]
    measured: list[TestGroup]
    """Tests that passed and measured something worth a look."""

    @property
    def blocked(self) -> bool:
        """Whether there is nothing to see but that it was blocked."""
        return bool(self.entries) and {group.outcome for group in self.entries} == {"BLOCKED"}


@dataclass
class FamilySection:
    """A family's section."""

    name: str
    anchor: str
    checkpoint: str
    gates: list[GateSection]
    left_out: int
    """Failures that are not laid out."""


def families(lanes: Lanes, limits: TextLimits) -> tuple[list[FamilySection], int]:
    """Return the families of a run, and how many are not shown."""
    listed, left_out = first(map(mapping, listing(lanes.ours.get("families"))), limits.items)
    return [
        _Reader(lanes, limits, at, family).family() for at, family in enumerate(listed)
    ], left_out


class _Reader:
    """Reads one family of the document."""

    def __init__(self, lanes: Lanes, limits: TextLimits, at: int, family: dict[str, Any]) -> None:
        self._lanes = lanes
        self._limits = limits
        self._at = at
        self._family = family
        self._name = str(family.get("name", "?"))
        self._gates = [mapping(gate) for gate in listing(family.get("gates"))][: limits.items]
        self._room = limits.failures
        self._left_out = 0
        self._at_once = self._planned_at_once()

    def family(self) -> FamilySection:
        """Return the family's section."""
        gates = [self._gate(f"f{self._at}g{at}", gate) for at, gate in enumerate(self._gates)]
        boot = mapping(self._family.get("boot"))
        if not boot.get("ok", True):
            failed = (
                group for gate in gates if gate.name == "boot" for group in gate.entries
                if group.outcome == "FAIL"
            )  # fmt: skip
            if first_failed := next(failed, None):
                first_failed.log = mapping(boot.get("explanation")) or None
        return FamilySection(
            name=self._name,
            anchor=f"family-{self._at}",
            checkpoint=str(mapping(self._family.get("checkpoint")).get("name", "?")),
            gates=gates,
            left_out=self._left_out,
        )

    def _gate(self, anchor: str, gate: dict[str, Any]) -> GateSection:
        name = str(gate.get("gate", "?"))
        tests = [mapping(test) for test in listing(gate.get("tests"))]
        groups = _grouped(test for test in tests if test.get("outcome") in BAD)
        listed, left_out = first(groups, max(0, self._room))
        self._room -= len(listed)
        self._left_out += left_out
        passed = (test for test in tests if test.get("outcome") == "PASS")
        measured = (self._entry("", name, [test]) for test in passed)
        return GateSection(
            name=name,
            title=str(gate.get("title", "")),
            outcome=str(gate.get("outcome", "?")),
            tests=sum(test.get("outcome") != "N/A" for test in tests),
            passed=sum(test.get("outcome") in WELL for test in tests),
            duration_s=number(gate.get("duration_s")) or 0.0,
            entries=[self._entry(f"{anchor}t{at}", name, group) for at, group in enumerate(listed)],
            measured=[group for group in measured if group.speed or group.memory][
                : self._limits.items
            ],
        )

    def _entry(self, anchor: str, gate: str, tests: list[dict[str, Any]]) -> TestGroup:
        test, limits = tests[0], self._limits
        name, evidence = str(test.get("test", "?")), mapping(test.get("evidence"))
        reason, added = terminal.for_readers(str(test.get("reason", "")))
        first_line, _, other_lines = reason.partition("\n")
        timeline, incidents = self._streams((self._name, gate, name), evidence)
        group = TestGroup(
            anchor=anchor,
            title=title(name, self._name),
            tests=[str(each.get("test", "?")) for each in tests],
            outcome=str(test.get("outcome", "?")),
            reason=first_line,
            duration_s=sum(number(each.get("duration_s")) or 0.0 for each in tests),
            reproduce=str(test.get("reproduce", "")),
            lines=prompts.lines_with_marks(other_lines[: 2 * limits.text]),
            diff=prompts.token_diff(evidence, limits),
            speed=throughput.comparison(evidence, self._lanes.names[0], limits),
            memory=html_memory.memory(evidence, self._at_once),
            timeline=timeline,
            incidents=incidents,
        )
        drawn = _shown(group)
        group.rest = [
            (key, _json(value, limits.text)) for key, value in evidence.items() if key not in drawn
        ][: limits.items]
        if added:
            group.rest.append(("assertion", added))
        return group

    def _streams(
        self, where: tuple[str, str, str], evidence: dict[str, Any]
    ) -> tuple[streams.Timeline | None, list[str]]:
        """Return what came of a test's streams on both lanes, and the incidents of ours."""
        lanes, (our_name, their_name) = self._lanes, self._lanes.names
        incidents = lanes.incidents(where)
        ours = streams.recorded(evidence) or lanes.recorded(incidents)
        if not ours:
            return None, incidents
        theirs = streams.recorded(lanes.their_evidence(where)) or lanes.recorded_by_them(where)
        if not theirs:
            return streams.timeline(ours, self._limits), incidents
        pairs = [
            (f"{our_name}: {ours[0][0]}", ours[0][1]),
            (f"{their_name}: {theirs[0][0]}", theirs[0][1]),
        ]
        return streams.timeline(pairs, self._limits), incidents

    def _planned_at_once(self) -> int:
        """Return how many requests of full length the deployment plans for."""
        counts = (
            number(mapping(mapping(test).get("evidence")).get("planned_at_once"))
            for gate in self._gates
            for test in listing(gate.get("tests"))
        )
        return next((int(count) for count in counts if count), 1)


def _shown(group: TestGroup) -> set[str]:
    """Return the evidence that is shown in a way of its own."""
    keys = set(SHOWN_ELSEWHERE)
    keys |= {prompts.KEY} if group.diff else set()
    keys |= {"decision", "pairs", "blocks"} if group.speed else set()
    keys |= {"planned", "told"} if group.memory else set()
    return keys | ({streams.KEY} if group.timeline else set())


def _grouped(tests: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the tests by weight, those of one outcome and reason together."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for test in tests:
        groups.setdefault((str(test.get("outcome")), str(test.get("reason", ""))), []).append(test)
    return sorted(groups.values(), key=lambda group: BAD.index(str(group[0]["outcome"])))


def title(test: str, family: str) -> str:
    """Return a test's name as a sentence: what it holds, and of which case."""
    name, _, case = test.partition("[")
    case = re.sub(rf"^{re.escape(family)}(-|$)", "", case.removesuffix("]"))
    words = name.removeprefix("test_").replace("_", " ")
    sentence = words[:1].upper() + words[1:]
    return f"{sentence}: {case}" if case else sentence


def _json(value: Any, most: int) -> str:
    """Return evidence as text; what is far too long is not laid out before it is cut."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > most or len(text) < ONE_LINE:
        return text
    return json.dumps(value, ensure_ascii=False, default=str, indent=1)
