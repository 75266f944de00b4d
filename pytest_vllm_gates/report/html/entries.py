"""One test, or tests with the same result, with everything that they recorded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.report.html import (
    exchanges,
    memory as html_memory,
    prompts,
    streams,
    throughput,
)
from pytest_vllm_gates.report.html.drawing import first, mapping, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits
    from pytest_vllm_gates.report.html.sections import Lanes

SHOWN_ELSEWHERE = frozenset({"known_defects", "known_defects_gone"})
ONE_LINE = 100
TIMED = re.compile(r"arrive|hang|stops?_while|stall|latenc|late\b|slow|freeze|timely")
"""Parts of the names of tests that judge time: only for these a time line is useful."""


@dataclass(frozen=True)
class OtherTest:
    """Another test with the same outcome and reason."""

    name: str
    reproduce: str
    rest: list[tuple[str, str]]


@dataclass
class TestGroup:
    """Tests of one gate with the same result, and their evidence."""

    anchor: str
    title: str
    family: str
    gate: str
    tests: list[str]
    outcome: str
    reason: str
    """Its first line."""
    duration_s: float
    reproduce: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """The other lines of the reason, each with its kind."""
    diff: prompts.TokenDiff | None = None
    timeline: streams.Timeline | None = None
    speed: throughput.ThroughputSection | None = None
    memory: html_memory.Memory | None = None
    incidents: list[str] = field(default_factory=list)
    replays: list[str] = field(default_factory=list)
    """The commands that replay the incidents."""
    request: exchanges.ShownText | None = None
    exchanges: exchanges.Exchanges = field(default_factory=lambda: exchanges.Exchanges((), 0))
    log: Mapping[str, Any] | None = None
    rest: list[tuple[str, str]] = field(default_factory=list)
    """The other evidence, as JSON."""
    others: list[OtherTest] = field(default_factory=list)
    """The tests after the first."""

    @property
    def measured(self) -> bool:
        """Whether it measured something that can be drawn."""
        return bool(self.speed or self.memory)


@dataclass(frozen=True)
class EntryReader:
    """Lays out the tests of one family."""

    lanes: Lanes
    limits: TextLimits
    family: str
    at_once: int
    """The planned number of concurrent requests of full length."""

    def entry(self, anchor: str, gate: str, tests: list[dict[str, Any]]) -> TestGroup:
        """Return tests with the same outcome and reason as one entry."""
        test, limits = tests[0], self.limits
        name, evidence = str(test.get("test", "?")), mapping(test.get("evidence"))
        whole_reason = str(test.get("reason", ""))
        reason, added = terminal.for_readers(whole_reason)
        first_line, _, other_lines = reason.partition("\n")
        incidents = self.lanes.incidents((self.family, gate, name))
        group = TestGroup(
            anchor=anchor,
            title=title(name, self.family),
            family=self.family,
            gate=gate,
            tests=[str(each.get("test", "?")) for each in tests],
            outcome=str(test.get("outcome", "?")),
            reason=first_line,
            duration_s=sum(number(each.get("duration_s")) or 0.0 for each in tests),
            reproduce=str(test.get("reproduce", "")),
            lines=prompts.lines_with_marks(other_lines[: 2 * limits.text]),
            diff=prompts.token_diff(evidence, limits),
            speed=throughput.comparison(evidence, self.lanes.names[0], limits),
            memory=html_memory.memory(evidence, self.at_once),
            timeline=self._timeline((self.family, gate, name), evidence, incidents),
            incidents=incidents,
            replays=self.lanes.replays((self.family, gate, name)),
            request=exchanges.of_reason(whole_reason),
            exchanges=exchanges.of_incidents(self.lanes.folder, incidents, limits),
        )
        group.rest = self._rest(evidence, _drawn(group))
        if added:
            group.rest.append(("assertion", added))
        group.others = [
            OtherTest(
                str(other.get("test", "?")),
                str(other.get("reproduce", "")),
                self._rest(mapping(other.get("evidence")), SHOWN_ELSEWHERE),
            )
            for other in first(tests[1:], limits.items)[0]
        ]
        return group

    def _rest(
        self, evidence: Mapping[str, Any], drawn: set[str] | frozenset[str]
    ) -> list[tuple[str, str]]:
        texts = (
            (key, laid_out(value, self.limits.text))
            for key, value in evidence.items()
            if key not in drawn
        )
        return first(texts, self.limits.items)[0]

    def _timeline(
        self, where: tuple[str, str, str], evidence: dict[str, Any], incidents: list[str]
    ) -> streams.Timeline | None:
        """Return a test's streams on both lanes over time; None if it does not judge time."""
        if not (streams.paced(evidence) or TIMED.search(where[2])):
            return None
        lanes, (our_name, their_name) = self.lanes, self.lanes.names
        ours = streams.recorded(evidence) or lanes.recorded(incidents)
        if not ours:
            return None
        theirs = streams.recorded(lanes.their_evidence(where)) or lanes.recorded_by_them(where)
        if not theirs:
            return streams.timeline(ours, self.limits)
        pairs = [
            (f"{our_name}: {ours[0][0]}", ours[0][1]),
            (f"{their_name}: {theirs[0][0]}", theirs[0][1]),
        ]
        return streams.timeline(pairs, self.limits)


def _drawn(group: TestGroup) -> set[str]:
    """Return the evidence that is not shown as JSON."""
    keys = set(SHOWN_ELSEWHERE)
    keys |= {prompts.KEY} if group.diff else set()
    keys |= {"decision", "pairs", "blocks"} if group.speed else set()
    keys |= {"planned", "told"} if group.memory else set()
    return keys | ({streams.KEY} if group.timeline else set())


def title(test: str, family: str) -> str:
    """Return a test's name as a sentence: its promise and its case."""
    name, _, case = test.partition("[")
    case = re.sub(rf"^{re.escape(family)}(-|$)", "", case.removesuffix("]"))
    words = name.removeprefix("test_").replace("_", " ")
    sentence = words[:1].upper() + words[1:]
    return f"{sentence}: {case}" if case else sentence


def laid_out(value: Any, most: int) -> str:
    """Return evidence as text; very long evidence is cut before it is laid out."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > most or len(text) < ONE_LINE:
        return text
    return json.dumps(value, ensure_ascii=False, default=str, indent=1)
