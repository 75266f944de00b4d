"""The report's sections by family: its gates, and each test with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.html import links, numbers
from pytest_vllm_gates.report.html.drawing import LEAST, first, listing, mapping, number
from pytest_vllm_gates.report.html.entries import EntryReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits
    from pytest_vllm_gates.report.html.entries import TestGroup
    from pytest_vllm_gates.report.html.panels import Panel
    from pytest_vllm_gates.report.html.sections import Lanes

BAD = ("FAIL", "BLOCKED", "MISSING", "INCONCLUSIVE", "WAIVED")
"""The outcomes that are shown in full, by weight: those that block a bundle, and waived ones."""
MOST_FAILURES = 1000
"""The most failures of all families together that are shown in full, to limit the page's size."""
WELL = ("PASS", "KNOWN", "WAIVED")


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
    others: list[TestGroup]
    """The tests that do not block the bundle: passed, known, not applicable."""

    @property
    def blocked(self) -> bool:
        """Whether all shown tests were blocked."""
        return bool(self.entries) and {group.outcome for group in self.entries} == {"BLOCKED"}

    @property
    def measured(self) -> list[TestGroup]:
        """Tests that passed and measured something that can be drawn."""
        return [group for group in self.others if group.measured]

    @property
    def anchor(self) -> str:
        """The first test's anchor on the page; '' if none is shown."""
        return next((group.anchor for group in (*self.entries, *self.others)), "")


@dataclass
class FamilySection:
    """A family's section."""

    name: str
    anchor: str
    checkpoint: str
    gates: list[GateSection]
    left_out: int
    """The number of failures that are not shown."""
    passed_left_out: int
    """The number of other tests that are not shown."""
    log: str
    """A link to the server's log; '' if it is not beside the report."""
    lanes: list[tuple[str, str]]
    """Each lane's name and the style of its marks."""
    panels: list[Panel]
    """The figures that the gates measured."""

    def links(self, gate: GateSection, about: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the links to more about a gate's tests, each with its text.

        `about` has the anchor of each gate's page.
        """
        found = [(f"#{about[gate.name]}", f"What {gate.name} judges")] if gate.name in about else []
        return [*found, *([(self.log, "The server's log")] if self.log else [])]

    @property
    def numbers(self) -> str:
        """The anchor of its figures; '' if it has none."""
        has = self.panels or any(gate.measured for gate in self.gates)
        return f"{self.anchor}-numbers" if has else ""


def families(lanes: Lanes, limits: TextLimits) -> tuple[list[FamilySection], int]:
    """Return the families of a run, and the number that is not shown."""
    listed, left_out = first(map(mapping, listing(lanes.ours.get("families"))), limits.items)
    share = max(1, len(listed))
    failures = min(limits.failures, max(LEAST, MOST_FAILURES // share))
    rooms = {True: failures, False: limits.passed // share}
    return [
        _FamilyReader(lanes, limits, at, family, rooms).family() for at, family in enumerate(listed)
    ], left_out


class _FamilyReader:
    """Reads one family of the document."""

    def __init__(
        self, lanes: Lanes, limits: TextLimits, at: int, family: dict[str, Any],
        rooms: Mapping[bool, int],
    ) -> None:  # fmt: skip
        """`rooms` is the number of failures (True) and of other tests that are still shown."""
        self._lanes = lanes
        self._limits = limits
        self._at = at
        self._family = family
        self._gates = [mapping(gate) for gate in listing(family.get("gates"))][: limits.items]
        self._rooms = dict(rooms)
        self._left_out = {True: 0, False: 0}
        self._read = EntryReader(
            lanes, limits, str(family.get("name", "?")), self._planned_at_once()
        )

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
        side_names, panels = numbers.numbers(self._lanes, self._family, self._limits)
        return FamilySection(
            name=self._read.family,
            anchor=f"family-{self._at}",
            checkpoint=str(mapping(self._family.get("checkpoint")).get("name", "?")),
            gates=gates,
            left_out=self._left_out[True],
            passed_left_out=self._left_out[False],
            log=links.server_log(self._lanes.folder, self._family),
            lanes=side_names,
            panels=panels,
        )

    def _gate(self, anchor: str, gate: dict[str, Any]) -> GateSection:
        name = str(gate.get("gate", "?"))
        tests = [mapping(test) for test in listing(gate.get("tests"))]
        bad = _grouped(test for test in tests if test.get("outcome") in BAD)
        well = [[test] for test in tests if test.get("outcome") not in BAD]
        return GateSection(
            name=name,
            title=str(gate.get("title", "")),
            outcome=str(gate.get("outcome", "?")),
            tests=sum(test.get("outcome") != "N/A" for test in tests),
            passed=sum(test.get("outcome") in WELL for test in tests),
            duration_s=number(gate.get("duration_s")) or 0.0,
            entries=self._entries(f"{anchor}t", name, bad, failures=True),
            others=self._entries(f"{anchor}p", name, well, failures=False),
        )

    def _entries(
        self, anchor: str, gate: str, groups: list[list[dict[str, Any]]], *, failures: bool
    ) -> list[TestGroup]:
        listed, left_out = first(groups, max(0, self._rooms[failures]))
        self._rooms[failures] -= len(listed)
        self._left_out[failures] += left_out
        return [self._read.entry(f"{anchor}{at}", gate, group) for at, group in enumerate(listed)]

    def _planned_at_once(self) -> int:
        """Return the planned number of concurrent requests of full length."""
        counts = (
            number(mapping(mapping(test).get("evidence")).get("planned_at_once"))
            for gate in self._gates
            for test in listing(gate.get("tests"))
        )
        return next((int(count) for count in counts if count), 1)


def _grouped(tests: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the tests by weight, grouped by outcome and reason."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for test in tests:
        groups.setdefault((str(test.get("outcome")), str(test.get("reason", ""))), []).append(test)
    return sorted(groups.values(), key=lambda group: BAD.index(str(group[0]["outcome"])))
