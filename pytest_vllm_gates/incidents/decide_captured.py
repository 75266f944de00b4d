"""Decides the outcomes that only the replay of a captured request can have.

A new error shows nothing about the captured fault. Without a recorded answer only the expectations
can be judged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_vllm_gates.incidents.expectation import ERROR
from pytest_vllm_gates.incidents.types import CAPTURED, ReplayOutcome
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.incidents.types import Incident
    from pytest_vllm_gates.outcomes import Finding

ERROR_STATUS = re.compile(r"\bstatus (?:is )?[45]\d\d\b")
KEY_REFUSED = {401, 403}
UNDECIDED = (Outcome.BLOCKED, Outcome.MISSING, Outcome.INCONCLUSIVE)


def new_errors(incident: Incident, statuses: Mapping[str, int | None]) -> dict[str, int]:
    """Return the statuses of a captured incident's sends that are errors now, but were not then."""
    if incident.gate != CAPTURED:
        return {}
    then = {send.name for send in incident.sends if send.error or (send.status or 0) >= ERROR} | {
        finding.case for finding in incident.findings if ERROR_STATUS.search(finding.says)
    }
    return {
        name: status
        for name, status in statuses.items()
        if status is not None and status >= ERROR and name not in then
    }


def decide(
    incident: Incident,
    outcome: Outcome,
    reason: str,
    findings: Sequence[Finding],
    errors: Mapping[str, int],
) -> tuple[ReplayOutcome, str] | None:
    """Return the outcome that only a captured incident has; None if it is decided as any other."""
    if outcome in UNDECIDED:
        return ReplayOutcome.NOT_JUDGED, reason.partition("\n")[0] or f"its test is {outcome}"
    unanswered = _has_no_answer(incident)
    if errors and not (unanswered and _judges_a_status(findings, errors)):
        return _answered_by_errors(errors, unanswered=unanswered)
    if unanswered and outcome in (Outcome.FAIL, Outcome.WAIVED) and findings:
        says = dict.fromkeys(finding.says.removeprefix("it ") for finding in findings)
        return ReplayOutcome.NOT_MET, f"the expectation is not met here: {'; '.join(says)}"
    return None


def _has_no_answer(incident: Incident) -> bool:
    """Return whether no answer to a captured incident's requests was recorded."""
    return (
        incident.gate == CAPTURED
        and not incident.findings
        and all(send.status is None and not send.error for send in incident.sends)
    )


def _judges_a_status(findings: Sequence[Finding], errors: Mapping[str, int]) -> bool:
    """Return whether an expected status is not met, for another reason than a refused key."""
    of_status = any(finding.says.startswith("status is ") for finding in findings)
    return of_status and not set(errors.values()) <= KEY_REFUSED


def _answered_by_errors(
    errors: Mapping[str, int], *, unanswered: bool
) -> tuple[ReplayOutcome, str]:
    listed = ", ".join(dict.fromkeys(map(str, errors.values())))
    if set(errors.values()) <= KEY_REFUSED:
        return ReplayOutcome.NOT_JUDGED, f"the server refused the key (status {listed})"
    if unanswered:
        return ReplayOutcome.NOT_JUDGED, f"the answer is an error (status {listed})"
    return ReplayOutcome.DIFFERENT, f"the answer is an error now (status {listed}), but was not"
