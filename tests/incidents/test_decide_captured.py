"""The replay of a captured request is judged by its answer then, or by its expectations."""

from __future__ import annotations

from typing import Any

import pytest
from incident_folders_made import incident

from pytest_vllm_gates.incidents.compare import decide
from pytest_vllm_gates.incidents.types import RecordedFinding, ReplayOutcome, Send
from pytest_vllm_gates.outcomes import Case, Finding, Outcome

CALLS_NOTHING = "it calls nothing, not get_time"


def findings_of(*says: str, case: str = "plain") -> list[Finding]:
    return [Finding(Case(case), sentence) for sentence in says]


def captured(status: int | None = 200, says: str = CALLS_NOTHING, **more: Any) -> Any:
    send = Send(
        name="1", method="POST", path="/v1/x", headers={}, body=None, response=None, status=status
    )
    findings = (RecordedFinding(case="1", says=says),)
    return incident(**{"gate": "captured", "sends": (send,), "findings": findings, **more})


@pytest.mark.parametrize(
    ("before", "says", "now", "answer"),
    [
        (captured(), CALLS_NOTHING, 200, ReplayOutcome.REPRODUCED),
        (captured(), CALLS_NOTHING + " (status 400)", 400, ReplayOutcome.DIFFERENT),
        (captured(None), CALLS_NOTHING + " (status 500)", 500, ReplayOutcome.DIFFERENT),
        (captured(), CALLS_NOTHING + " (status 401)", 401, ReplayOutcome.NOT_JUDGED),
        # An error that was recorded: by its status, or in the finding of a shrunk incident.
        (captured(400), CALLS_NOTHING + " (status 400)", 400, ReplayOutcome.REPRODUCED),
        (
            captured(None, CALLS_NOTHING + " (status 500)"),
            CALLS_NOTHING + " (status 500)", 500, ReplayOutcome.REPRODUCED,
        ),
    ],
)  # fmt: skip
def test_new_error_shows_nothing_of_a_captured_request(
    before: Any, says: str, now: int, answer: ReplayOutcome
) -> None:
    found = findings_of(says, case="1")
    assert decide(before, Outcome.FAIL, says, found, statuses={"1": now})[0] is answer


def test_error_that_meets_the_expectations_does_not_pass() -> None:
    answer, why = decide(captured(), Outcome.PASS, "", [], statuses={"1": 500})
    assert (answer, why) == (
        ReplayOutcome.DIFFERENT,
        "the answer is an error now (status 500), but was not",
    )
    expected = decide(captured(), Outcome.PASS, "", [], statuses={"1": 400}, error_expected=True)
    assert expected[0] is ReplayOutcome.NOT_REPRODUCED


UNANSWERED = captured(None, findings=(), says="expected: calls get_time")


@pytest.mark.parametrize(
    ("outcome", "says", "status", "answer", "why"),
    [
        (
            Outcome.FAIL, CALLS_NOTHING, 200,
            "NOT MET", "the expectation is not met here: calls nothing, not get_time",
        ),
        (
            Outcome.FAIL, "status is 500, not 200: 'x'", 500,
            "NOT MET", "the expectation is not met here: status is 500, not 200: 'x'",
        ),
        (
            Outcome.FAIL, CALLS_NOTHING + " (status 500)", 500,
            "NOT JUDGED", "the answer is an error (status 500)",
        ),
        (
            Outcome.FAIL, "status is 401, not 200: 'x'", 401,
            "NOT JUDGED", "the server refused the key (status 401)",
        ),
        (Outcome.BLOCKED, "", None, "NOT JUDGED", "it did not boot"),
        (Outcome.PASS, "", 200, "NOT REPRODUCED", "it did not boot\nx"),
    ],
)  # fmt: skip
def test_request_without_an_answer_is_judged_by_its_expectations(
    outcome: Outcome, says: str, status: int | None, answer: str, why: str
) -> None:
    found = findings_of(says, case="1") if says else []
    statuses = {"1": status} if status else {}
    decided = decide(UNANSWERED, outcome, "it did not boot\nx", found, statuses=statuses)
    assert decided == (answer, why)
