"""The causes that several checks share: many failures with one cause need one repair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report import terminal
from pytest_vllm_gates.report.html.drawing import first, listing, mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.report.html.drawing import TextLimits

UNWELL = ("FAIL", "BLOCKED", "INCONCLUSIVE", "MISSING")
SEVERAL = 2
MANY = 3
"""The least number of checks that makes a cause the headline, if they are half of all checks."""
HALF = 2
REASON_CHARACTERS = 400
"""The most characters of a reason that are compared."""
NOT_BOOTED = re.compile(r"^the server did not boot\b[:,;]?\s*", re.IGNORECASE)
COUNTED = re.compile(r"\s*\(in \d+ of \d+ cases\)")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
WORDS = re.compile(r"[\w#]+")


@dataclass(frozen=True)
class SharedCause:
    """One cause of several checks that did not pass."""

    says: str
    checks: int
    gates: tuple[str, ...]
    """`family: gate` of each affected gate, in the order of the run."""
    anchor: str
    """The anchor of the first affected family."""


@dataclass(frozen=True)
class Causes:
    """The shared causes, the most frequent first."""

    unwell: int
    """The number of checks that did not pass."""
    shared: tuple[SharedCause, ...]
    left_out: int

    @property
    def headline(self) -> SharedCause | None:
        """The cause of many failures at once, or None."""
        most = self.shared[0] if self.shared else None
        return most if most and most.checks >= max(MANY, self.unwell / HALF) else None


@dataclass(frozen=True)
class _Unwell:
    """One check that did not pass, and its reason."""

    key: str
    says: str
    gate: str
    anchor: str


def causes(document: Mapping[str, Any], limits: TextLimits) -> Causes:
    """Return the shared causes of a run's failed checks.

    Checks that a failed boot blocks have that boot's cause. Two reasons that differ only in
    numbers are one cause.
    """
    unwell = list(_unwell(document))
    groups: dict[str, list[_Unwell]] = {}
    for check in unwell:
        groups.setdefault(check.key, []).append(check)
    several = sorted(
        (group for group in groups.values() if len(group) >= SEVERAL), key=len, reverse=True
    )
    shown, left_out = first(several, limits.items)
    return Causes(
        len(unwell),
        tuple(
            SharedCause(
                group[0].says,
                len(group),
                tuple(dict.fromkeys(check.gate for check in group)),
                group[0].anchor,
            )
            for group in shown
        ),
        left_out,
    )


def _unwell(document: Mapping[str, Any]) -> Iterator[_Unwell]:
    for at, family in enumerate(map(mapping, listing(document.get("families")))):
        boot_cause = _boot_cause(mapping(family.get("boot")))
        name = str(family.get("name", "?"))
        for gate in map(mapping, listing(family.get("gates"))):
            gate_name = str(gate.get("gate", "?"))
            for test in map(mapping, listing(gate.get("tests"))):
                outcome = test.get("outcome")
                if outcome not in UNWELL:
                    continue
                reason = _first_line(str(test.get("reason", "")))
                of_the_boot = outcome == "BLOCKED" and NOT_BOOTED.match(reason)
                if boot_cause and (of_the_boot or (gate_name == "boot" and outcome == "FAIL")):
                    reason = boot_cause
                yield _Unwell(_key(reason), reason, f"{name}: {gate_name}", f"family-{at}")


def _boot_cause(boot: Mapping[str, Any]) -> str:
    """Return why a server did not boot; '' if it did, or if nothing is known of it."""
    if not boot or boot.get("ok", True):
        return ""
    answer = mapping(mapping(boot.get("explanation")).get("answer"))
    why = str(answer.get("title") or "") or _first_line(str(boot.get("failure") or ""))
    return f"the server did not boot: {why}" if why else ""


def _first_line(reason: str) -> str:
    text = terminal.for_readers(reason[:REASON_CHARACTERS])[0].strip()
    return COUNTED.sub("", text.partition("\n")[0])


def _key(reason: str) -> str:
    """Return the words of a reason without its numbers: reasons of one cause share them."""
    return " ".join(WORDS.findall(NUMBER.sub("#", NOT_BOOTED.sub("", reason)).lower()))
