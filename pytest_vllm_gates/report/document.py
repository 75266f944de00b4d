"""`verdict.json`: the whole run as one document, in the format of `verdict.schema.json`."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pytest_vllm_gates import __version__
from pytest_vllm_gates.files import write_whole
from pytest_vllm_gates.outcomes import Outcome, TestResult
from pytest_vllm_gates.redaction.redactor import Redactor
from pytest_vllm_gates.redaction.shown import redacted
from pytest_vllm_gates.report.environment import machine_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.catalog.waivers import SettledWaiver
    from pytest_vllm_gates.machine.types import Machine
    from pytest_vllm_gates.server.types import Boot
    from pytest_vllm_gates.verdict.verdict import GateResult, Verdict

NAME = "verdict.json"
SCHEMA = Path(__file__).with_name("verdict.schema.json")
FORMAT = "pytest-vllm-gates/verdict"
VERSION = 1
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class ReportFacts:
    """The facts of a run, besides its verdict."""

    command: Sequence[str]
    lane: Lane
    lane_why: str
    repairs: Sequence[str]
    versions: Mapping[str, str]
    machine: Machine
    checkpoints: Mapping[str, Checkpoint]
    boots: Mapping[str, Boot]
    inventory: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The contents of the lane's environment; empty if it was not inspected."""
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Each gate's title, by its name."""
    reproduce: Mapping[tuple[str, str, str], str] = dataclasses.field(default_factory=dict)
    """The command that runs a test again, by (family, gate, test)."""
    redactor: Redactor = dataclasses.field(default_factory=Redactor)


class RunContext(TypedDict, total=False):
    """Facts for the document besides the run's own outcomes, in the schema's form."""

    against: Mapping[str, Any] | None
    bundle: Mapping[str, Any] | None
    rollback: Mapping[str, Any] | None
    history: Sequence[Mapping[str, Any]]
    incidents: Sequence[Mapping[str, Any]]
    repro: Mapping[str, Any] | None
    notes: Sequence[str]


def compose(
    facts: ReportFacts, verdict: Verdict, exit_status: int, context: RunContext | None = None
) -> dict[str, Any]:
    """Return the document, without secrets, so nothing made from it has secrets."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "tool": {"name": "pytest-vllm-gates", "version": __version__},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": list(facts.command),
        "promotion": str(verdict.promotion),
        "reasons": list(verdict.reasons),
        "known_defects": {"standing": list(verdict.standing), "gone": list(verdict.gone)},
        "exit_status": exit_status,
        "lane": {
            "name": facts.lane.name,
            "title": facts.lane.title,
            "why": facts.lane_why,
            "form": facts.lane.form,
            "env": redacted(facts.lane.env),
            "serve": facts.lane.serve,
            "overlay": list(facts.repairs),
            "versions": dict(facts.versions),
            "inventory": dict(facts.inventory) or None,
        },
        "machine": machine_document(facts.machine),
        "families": [
            _family(name, checkpoint, facts, verdict)
            for name, checkpoint in facts.checkpoints.items()
        ],
        "against": None,
        "bundle": None,
        "waivers": [_waiver(settled) for settled in verdict.waivers],
        "next": list(verdict.next),
        "rollback": None,
        "history": [],
        "incidents": [],
        "repro": None,
        **(context or {}),
    }
    clean: dict[str, Any] = facts.redactor.json(document)
    return clean


def results(document: Mapping[str, Any]) -> list[TestResult]:
    """Return the results in a document."""
    return [
        TestResult(
            family=family["name"],
            gate=gate["gate"],
            test=test["test"],
            outcome=Outcome(test["outcome"]),
            reason=test["reason"],
            cause=test.get("cause", ""),
            duration_s=test["duration_s"],
            requests=test.get("requests", 0),
            evidence=test["evidence"],
        )
        for family in document["families"]
        for gate in family["gates"]
        for test in gate["tests"]
    ]


def write(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write `verdict.json` into `folder`, whole or not at all; return its path.

    Raises `WriteError`.
    """
    path = folder / NAME
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    # A server can send half a surrogate pair. UTF-8 cannot encode it, but JSON can escape it.
    text = SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    write_whole(path, f"{text}\n")
    return path


def _family(
    name: str, checkpoint: Checkpoint, facts: ReportFacts, verdict: Verdict
) -> dict[str, Any]:
    boot = facts.boots.get(name)
    return {
        "name": name,
        "checkpoint": {
            "name": checkpoint.name,
            "source": checkpoint.source,
            "revision": checkpoint.revision,
        },
        "boot": _boot(boot) if boot else None,
        "gates": [_gate(gate, facts) for gate in verdict.gates if gate.family == name],
    }


def _waiver(settled: SettledWaiver) -> dict[str, str]:
    waiver = settled.waiver
    return {
        "check": waiver.check,
        "who": waiver.who,
        "why": waiver.why,
        "until": waiver.until.isoformat(),
        "state": str(settled.state),
    }


def _boot(boot: Boot) -> dict[str, Any]:
    explanation = boot.failure.explanation if boot.failure else None
    return {
        "ok": boot.endpoint is not None,
        "failure": boot.failure.explain() if boot.failure else None,
        "explanation": explanation.document() if explanation else None,
        "times": dataclasses.asdict(boot.times) if boot.times else None,
        "evidence": boot.evidence,
    }


def _gate(gate: GateResult, facts: ReportFacts) -> dict[str, Any]:
    return {
        "gate": gate.gate,
        "title": facts.titles.get(gate.gate, ""),
        "outcome": str(gate.outcome),
        "reason": gate.reason,
        "duration_s": round(gate.duration_s, 3),
        "tests": [_test(test, facts) for test in gate.tests],
    }


def _test(test: TestResult, facts: ReportFacts) -> dict[str, Any]:
    entry = {
        "test": test.test,
        "outcome": str(test.outcome),
        "reason": test.reason,
        "duration_s": round(test.duration_s, 3),
        "evidence": test.evidence,
    }
    if test.requests:
        entry["requests"] = test.requests
    if test.cause:
        entry["cause"] = test.cause
    if command := facts.reproduce.get((test.family, test.gate, test.test)):
        entry["reproduce"] = command
    return entry
