"""The report's first and last sections, and access to the documents of both lanes."""

from __future__ import annotations

import datetime
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.environment.types import MAIN_PACKAGES
from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.report.html import streams
from pytest_vllm_gates.report.html.drawing import first, listing, mapping
from pytest_vllm_gates.report.html.memory import size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.report.html.drawing import TextLimits

ROWS_AT_ONCE = 12
"""Changes of a bundle that are shown without unfolding."""
KINDS = (
    ("regression", "Regressions", "These fail only on this lane: this bundle broke them."),
    ("both", "Fail on both lanes", "Existing defects: this bundle did not cause them."),
    ("unequal", "Different outcomes", "These have another outcome than on the other lane."),
    ("mended", "Fixed", "These fail only on the other lane."),
)


@dataclass(frozen=True)
class Head:
    """The verdict, and the run it belongs to."""

    promotion: str
    sentence: str
    title: str
    lane: str
    against: str
    families: tuple[str, ...]
    when: str
    counts: tuple[tuple[str, int], ...]
    """The number of tests with each outcome, the most frequent first."""


def head(document: Mapping[str, Any]) -> Head:
    """Return the verdict as a plain sentence."""
    lane = str(mapping(document.get("lane")).get("name", "?"))
    comparison = mapping(document.get("against"))
    against = str(mapping(comparison.get("lane")).get("name", "")) if comparison else ""
    families = tuple(
        str(mapping(family).get("name", "?")) for family in listing(document["families"])
    )
    promotion = str(document["promotion"])
    of = f"{lane} against {against}" if against else lane
    return Head(
        promotion=promotion,
        sentence=terminal.sentence(document),
        title=f"{promotion}: {of}",
        lane=lane,
        against=against,
        families=families,
        when=when(document.get("created")),
        counts=_counts(document),
    )


def _counts(document: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for family in listing(document["families"]):
        for gate in listing(mapping(family).get("gates")):
            for test in listing(mapping(gate).get("tests")):
                outcome = str(mapping(test).get("outcome"))
                counts[outcome] = counts.get(outcome, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: -pair[1]))


def bundle(document: Mapping[str, Any], limits: TextLimits) -> dict[str, Any] | None:
    """Return what changed between the lanes; None if nothing was compared."""
    diff = mapping(document.get("bundle"))
    if not diff:
        return None
    changed, left_out = first(map(mapping, listing(diff.get("changed"))), limits.items)
    rows = [
        {
            "axis": str(change.get("axis", "")),
            "name": str(change.get("name", "")),
            "ours": value(change.get("ours")),
            "theirs": value(change.get("theirs")),
        }
        for change in changed
    ]
    return {
        "axes": [str(axis) for axis in listing(diff.get("axes"))][: limits.items],
        "warning": diff.get("warning"),
        "changed": rows[:ROWS_AT_ONCE],
        "more": rows[ROWS_AT_ONCE:],
        "left_out": left_out,
        "same": [str(axis) for axis in listing(diff.get("same"))][: limits.items],
        "unknown": [str(axis) for axis in listing(diff.get("unknown"))][: limits.items],
        "why": [str(reason) for reason in listing(diff.get("why"))][: limits.items],
    }


def comparison(document: Mapping[str, Any], limits: TextLimits) -> dict[str, Any] | None:
    """Return the differences to the other lane; None for a run of one lane."""
    against = mapping(document.get("against"))
    if not against:
        return None
    checks = [mapping(check) for check in listing(against.get("checks"))]
    kinds = []
    for kind, title, means in KINDS:
        listed, left_out = first(
            (check for check in checks if check.get("kind") == kind), limits.items
        )
        if listed:
            kinds.append(
                {"kind": kind, "title": title, "means": means, "checks": listed,
                 "left_out": left_out, "count": len(listed) + left_out}
            )  # fmt: skip
    drift, drift_left_out = first(map(mapping, listing(against.get("drift"))), limits.items)
    return {
        "lane": str(mapping(against.get("lane")).get("name", "?")),
        "promotion": str(against.get("promotion", "")),
        "document": str(against.get("document", "")),
        "kinds": kinds,
        "drift": [
            {**change, "ours": value(change.get("ours")), "theirs": value(change.get("theirs"))}
            for change in drift
        ],
        "drift_left_out": drift_left_out,
    }


def facts(document: Mapping[str, Any], limits: TextLimits) -> dict[str, Any]:
    """Return the facts of the run."""
    other_lane = mapping(mapping(document.get("against")).get("lane"))
    lanes = [mapping(document.get("lane")), *([other_lane] if other_lane else [])]
    return {
        "lanes": [_lane(lane, limits) for lane in lanes],
        "machine": _machine(mapping(document.get("machine"))),
        "checkpoints": [
            {"family": mapping(family).get("name"), **mapping(mapping(family).get("checkpoint"))}
            for family in listing(document["families"])[: limits.items]
        ],
        "command": shlex.join(str(argument) for argument in listing(document.get("command"))),
        "tool": mapping(document.get("tool")),
        "exit_status": document.get("exit_status"),
        "format": f"{document.get('format')} {document.get('version')}",
    }


def _lane(lane: dict[str, Any], limits: TextLimits) -> dict[str, Any]:
    versions = {str(name): str(text) for name, text in mapping(lane.get("versions")).items()}
    others, left_out = first(sorted(set(versions) - set(MAIN_PACKAGES)), limits.items)
    return {
        "name": str(lane.get("name", "?")),
        "title": str(lane.get("title", "")),
        "why": str(lane.get("why", "")),
        "form": str(lane.get("form", "")),
        "main": [(name, versions[name]) for name in MAIN_PACKAGES if name in versions],
        "rest": [(name, versions[name]) for name in others],
        "rest_left_out": left_out,
        "serve": [(str(k), value(v)) for k, v in mapping(lane.get("serve")).items()][
            : limits.items
        ],
        "env": [(str(k), value(v)) for k, v in mapping(lane.get("env")).items()][: limits.items],
        "overlay": [str(repair) for repair in listing(lane.get("overlay"))][: limits.items],
    }


def _machine(machine: dict[str, Any]) -> list[tuple[str, str]]:
    memory = machine.get("memory_bytes")
    rows = [
        ("processor", f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores"),
        ("memory", size(memory) if isinstance(memory, int) else "unknown"),
        ("GPUs", ", ".join(str(gpu) for gpu in listing(machine.get("gpus"))) or "none"),
    ]
    driver = mapping(machine.get("driver"))
    if driver.get("version"):
        rows.append(("driver", f"{driver['version']}, CUDA {driver.get('cuda') or 'unknown'}"))
    rows.append(("system", str(machine.get("os", "?"))))
    if machine.get("container"):
        rows.append(("container", str(machine["container"])))
    return [*rows, ("Python", str(machine.get("python", "?")))]


def value(content: Any) -> str:
    """Return a value as a cell shows it."""
    if content is None:
        return "\N{EN DASH}"
    return (
        content
        if isinstance(content, str)
        else json.dumps(content, ensure_ascii=False, default=str)
    )


def when(created: Any) -> str:
    """Return a time in readable form; a text that is not a time is returned unchanged."""
    try:
        at = datetime.datetime.fromisoformat(str(created))
    except ValueError:
        return str(created)
    zone = at.strftime("%Z") if at.tzinfo else ""
    return f"{at:%d %B %Y, %H:%M} {zone}".strip()


Where = tuple[str, str, str]
"""Family, gate and test."""


@dataclass(frozen=True)
class Lanes:
    """Our lane's document, the other lane's if there is one, and the folder of our report."""

    ours: Mapping[str, Any]
    theirs: Mapping[str, Any] | None = None
    folder: Path | None = None

    @property
    def names(self) -> tuple[str, str]:
        """The names of the lanes."""
        theirs = mapping(self.theirs.get("lane")) if self.theirs else {}
        ours = mapping(self.ours.get("lane")).get("name", "this lane")
        return str(ours), str(theirs.get("name", "the other lane"))

    def incidents(self, where: Where) -> list[str]:
        """Return the folders of our bundles of a test, from the report's folder."""
        return _incidents(self.ours, where)

    def replays(self, where: Where) -> list[str]:
        """Return the commands that replay a test's incidents; an old report has only paths."""
        return [
            str(incident.get("command") or f"pytest --repro {incident.get('path', '')}")
            for incident in _of_test(self.ours, where)
        ]

    def recorded(self, paths: Sequence[str]) -> list[tuple[str, list[streams.Piece]]]:
        """Return the streams in our incidents of a test."""
        return _recorded(self.folder, paths)

    def recorded_by_them(self, where: Where) -> list[tuple[str, list[streams.Piece]]]:
        """Return the streams in the other lane's incidents of a test."""
        document = mapping(self.ours.get("against")).get("document")
        if self.theirs is None or self.folder is None or not isinstance(document, str):
            return []
        return _recorded((self.folder / document).parent, _incidents(self.theirs, where))

    def their_evidence(self, where: Where) -> dict[str, Any]:
        """Return the evidence of the same test on the other lane."""
        if self.theirs is None:
            return {}
        matches = (
            mapping(test.get("evidence"))
            for family in map(mapping, listing(self.theirs.get("families")))
            for gate in map(mapping, listing(family.get("gates")))
            for test in map(mapping, listing(gate.get("tests")))
            if (family.get("name"), gate.get("gate"), test.get("test")) == where
        )
        return next(matches, {})


def _incidents(document: Mapping[str, Any], where: Where) -> list[str]:
    return [str(incident.get("path", "")) for incident in _of_test(document, where)]


def _of_test(document: Mapping[str, Any], where: Where) -> list[dict[str, Any]]:
    return [
        incident
        for incident in map(mapping, listing(document.get("incidents")))
        if (incident.get("family"), incident.get("gate"), incident.get("test")) == where
    ]


def _recorded(folder: Path | None, paths: Sequence[str]) -> list[tuple[str, list[streams.Piece]]]:
    if folder is None:
        return []
    return [stream for path in paths for stream in streams.of_incident(folder / path)]
