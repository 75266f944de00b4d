"""The findings of a failed test, from its incident or from its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.atlas.types import AtlasFinding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COUNTED = re.compile(r" \(in (\d+) of (\d+) cases?\)$")
"""The end of the first line of a check's message."""
ASKED = "  asked with: "
MORE = re.compile(r"^and \d+ more$")
INDENT = "  "
CASE_END = ":"
REASON_CHARACTERS = 1990
"""A reason of about this length was cut."""
MACHINE = re.compile(r"(?<![\w./])/(?:home|root|tmp|var|opt|usr|work|mnt|srv|Users)/[^\s'\",;)]*/")
"""The folders of a machine, in a text."""
DIED = re.compile("server died|EngineCore encountered|EngineDeadError")
SHOWN = 400
"""Characters of a sentence that are kept."""
ALIKE = 40
"""Findings of one shape that are kept."""
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\{.*\}|\[.*\]""")
NUMBER = re.compile(r"\d+(\.\d+)?")
SHAPE_CHARACTERS = 120


@dataclass(frozen=True)
class ReadFindings:
    """The findings of a failed test."""

    findings: tuple[AtlasFinding, ...]
    complete: bool
    requests: Mapping[str, str] = field(default_factory=dict)
    """The requests, by case."""


def cleaned(text: str) -> str:
    """Return a text without this machine's folders."""
    return MACHINE.sub("", text)


def of_reason(reason: str) -> ReadFindings:
    """Read the findings from a reason, as `fixtures/checking.py` lays them out."""
    lines = cleaned(reason).splitlines()
    header = next((place for place, line in enumerate(lines) if COUNTED.search(line)), None)
    if header is None:
        first = next((line.strip() for line in lines if line.strip()), "")
        return ReadFindings((AtlasFinding("", first[:SHOWN]),), complete=False)
    match = COUNTED.search(lines[header])
    cases = int(match[1]) if match else 0
    found: list[AtlasFinding] = []
    named, case, requests = set[str](), "", dict[str, str]()
    for line in lines[header + 1 :]:
        if line.startswith(ASKED):
            requests[case] = line.removeprefix(ASKED)
        elif line.startswith(INDENT) and case:
            found.append(AtlasFinding(case, line.strip()[:SHOWN]))
        elif line.endswith(CASE_END) and not found:
            case = line.removesuffix(CASE_END)
            named.add(case)
        elif len(named) < cases and not MORE.match(line) and CASE_END in line:
            case = ""
            named.add(line)
            found.append(AtlasFinding("", line[:SHOWN]))
    whole = cases == 1 and len(reason) < REASON_CHARACTERS and not DIED.search(reason)
    return ReadFindings(tuple(found), whole and bool(found), requests)


def of_incident(incident: Mapping[str, Any], reason: str) -> ReadFindings:
    """Return the findings of an incident; the request is from the reason.

    If the server died, later cases were not judged: the findings are not complete.
    """
    findings = tuple(
        AtlasFinding(cleaned(each["case"])[:SHOWN], cleaned(each["says"])[:SHOWN])
        for each in incident.get("findings", ())
    )
    read = of_reason(reason)
    if not findings:
        return read
    died = DIED.search(reason) or any(DIED.search(finding.says) for finding in findings)
    return ReadFindings(findings, not died, read.requests)


def together(several: Sequence[ReadFindings]) -> ReadFindings:
    """Return the findings of all parameters of a test."""
    return ReadFindings(
        tuple(finding for read in several for finding in read.findings),
        complete=all(read.complete for read in several),
        requests={case: sent for read in several for case, sent in read.requests.items()},
    )


def shape(sentence: str) -> str:
    """Return a sentence without its quotations and numbers: equal for equal faults."""
    text = NUMBER.sub("N", QUOTED.sub("…", " ".join(sentence.split())))
    return text[:SHAPE_CHARACTERS]


def few(findings: Sequence[AtlasFinding]) -> tuple[AtlasFinding, ...]:
    """Return the findings with at most `ALIKE` of one shape."""
    kept: dict[str, list[AtlasFinding]] = {}
    for finding in findings:
        alike = kept.setdefault(shape(finding.says), [])
        if len(alike) < ALIKE:
            alike.append(finding)
    return tuple(finding for alike in kept.values() for finding in alike)
