"""How a gate's check says what it found: known defects apart, the rest in words and requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.facts.finding import GONE, STANDING
from pytest_vllm_gates.facts.outcome import Known, NotApplicable
from pytest_vllm_gates.gate_items import found_key
from pytest_vllm_gates.judge import known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.evidence import Evidence
    from pytest_vllm_gates.facts.family import Family
    from pytest_vllm_gates.facts.finding import Case, Finding
    from pytest_vllm_gates.facts.known_defects import KnownDefect
    from pytest_vllm_gates.judge.known import Sorted
    from pytest_vllm_gates.run import Run

CASES_NAMED = 8
REQUEST_CHARACTERS = 1200


class Checking:
    """Ends a check: passes, fails with what a user would see, or says that it is known."""

    def __init__(
        self,
        check: str,
        *,
        own: Sequence[KnownDefect],
        shared: Sequence[KnownDefect],
        version: str | None,
        evidence: Evidence,
        tell: Callable[[Sorted], None],
    ) -> None:
        """`check` is the test's name without `test_`, as known defects call it.

        `own` are the family's, `shared` those of every family. `tell` hears what was found.
        """
        self._check = check
        self._own = own
        self._shared = shared
        self._version = version
        self._evidence = evidence
        self._tell = tell

    def knows(self, findings: Sequence[Finding], cases: Sequence[Case]) -> bool:
        """Return whether known defects cover all that was found."""
        defects = (*self._own, *self._shared)
        return not known.sort(self._check, findings, cases, defects, self._version).new

    def __call__(
        self, findings: Sequence[Finding], cases: Sequence[Case], sees: str, next_step: str = ""
    ) -> None:
        """Judge what was found in `cases`; `sees` says what a user would see of it.

        `next_step` is told after all that is wrong.

        Raises `NotApplicable` when there was no case, `Known` when the family file lists all that
        was found, and fails the test otherwise.
        """
        if not cases:
            raise NotApplicable("the family has no case for this")
        self._evidence["cases"] = len(cases)
        defects = (*self._own, *self._shared)
        found = known.sort(self._check, findings, cases, defects, self._version)
        self._tell(found)
        # What every family may meet need not show with each: its absence here says nothing.
        if gone := [one for one in found.gone if one in self._own]:
            self._evidence[GONE] = [f"{one.what} ({one.reference})" for one in gone]
        if found.known:
            self._evidence[STANDING] = [f"{one.what} ({one.reference})" for one, _ in found.known]
            self._evidence["known_in"] = {
                one.reference: [each.case.name for each in some] for one, some in found.known
            }
        if found.new:
            told = _told(found.new, len(cases), sees)
            pytest.fail("\n".join(filter(None, [told, next_step])), pytrace=False)
        if found.known:
            raise Known("; ".join(f"{one.what} ({one.reference})" for one, _ in found.known))


def _told(findings: Sequence[Finding], cases: int, sees: str) -> str:
    """Lay out what was found: the first case in full, the others by name."""
    first = findings[0].case
    names = list(dict.fromkeys(finding.case.name for finding in findings))
    lines = [
        f"{sees} (in {len(names)} of {cases} cases)",
        f"{first.name}:",
        *(f"  {finding.says}" for finding in findings if finding.case.name == first.name),
    ]
    if first.request:
        request = json.dumps(first.request, ensure_ascii=False)
        if len(request) > REQUEST_CHARACTERS:
            request = request[: REQUEST_CHARACTERS - 1] + "…"
        lines.append(f"  asked with: {request}")
    for name in names[1:CASES_NAMED]:
        says = next(finding.says for finding in findings if finding.case.name == name)
        lines.append(f"{name}: {says}")
    if len(names) > CASES_NAMED:
        lines.append(f"and {len(names) - CASES_NAMED} more")
    return "\n".join(lines)


@pytest.fixture
def checking(
    request: pytest.FixtureRequest,
    _run: Run,
    family: Family,
    version: str | None,
    evidence: Evidence,
) -> Checking:
    """End a check with its findings."""
    name = request.node.originalname.removeprefix("test_")

    def tell(found: Sorted) -> None:
        request.node.stash[found_key] = found

    return Checking(
        name,
        own=family.known_defects,
        shared=_run.known_defects,
        version=version,
        evidence=evidence,
        tell=tell,
    )
