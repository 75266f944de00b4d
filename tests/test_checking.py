"""How a check ends: with nothing, with what a user would see, or with what is known."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.checking import CASES_NAMED, REQUEST_CHARACTERS, Checking
from pytest_vllm_gates.facts.finding import GONE, STANDING, Case, Finding
from pytest_vllm_gates.facts.known_defects import KnownDefect
from pytest_vllm_gates.facts.outcome import Known, NotApplicable

LOST = KnownDefect(
    check="a_check",
    what="text is lost",
    versions=">=0.30",
    reference="vllm#1",
    shows="^lost",
    when={"mode": ("streamed",)},
)
SHARED = LOST.model_copy(update={"what": "all lose it", "reference": "vllm#2", "shows": "^all"})
STREAMED = Case("streamed", {"mode": "streamed"}, {"stream": True})
WHOLE = Case("whole", {"mode": "whole"})
CASES = [STREAMED, WHOLE]
SEES = "an answer is not what it should be"


@pytest.fixture
def checking(request: pytest.FixtureRequest) -> tuple[Checking, dict[str, Any]]:
    """A check with one known defect, and its evidence."""
    evidence: dict[str, Any] = {}
    version = getattr(request, "param", "0.32.0")
    return Checking(
        "a_check",
        own=[LOST],
        shared=[SHARED],
        version=version,
        evidence=evidence,  # type: ignore[arg-type]
        tell=lambda _: None,
    ), evidence


Check = tuple[Checking, dict[str, Any]]


def failure(check: Check, *findings: Finding) -> str:
    with pytest.raises(pytest.fail.Exception) as error:
        check[0](findings, CASES, SEES)
    return str(error.value)


def test_nothing_found_passes_and_tells_what_is_gone(checking: Check) -> None:
    check, evidence = checking
    check([], CASES, SEES)
    assert evidence == {"cases": 2, GONE: ["text is lost (vllm#1)"]}


def test_what_every_family_may_meet_stands_and_is_never_gone(checking: Check) -> None:
    check, evidence = checking
    with pytest.raises(Known, match="all lose it"):
        check([Finding(STREAMED, "all of it")], CASES, SEES)
    assert evidence[STANDING] == ["all lose it (vllm#2)"]
    assert evidence[GONE] == ["text is lost (vllm#1)"]


def test_the_next_step_is_told_last(checking: Check) -> None:
    with pytest.raises(pytest.fail.Exception) as error:
        checking[0]([Finding(WHOLE, "is wrong")], CASES, SEES, "accept it: pytest")
    assert str(error.value).splitlines()[-1] == "accept it: pytest"


def test_no_case_is_not_a_pass(checking: Check) -> None:
    with pytest.raises(NotApplicable):
        checking[0]([], [], SEES)


def test_what_is_known_is_no_failure_and_no_pass(checking: Check) -> None:
    check, evidence = checking
    with pytest.raises(Known, match=r"^text is lost \(vllm#1\)$"):
        check([Finding(STREAMED, "lost: 5 words")], CASES, SEES)
    assert evidence == {
        "cases": 2,
        STANDING: ["text is lost (vllm#1)"],
        "known_in": {"vllm#1": ["streamed"]},
    }


def test_what_is_new_fails_beside_what_is_known_and_alone_is_told(checking: Check) -> None:
    told = failure(checking, Finding(STREAMED, "lost: 5 words"), Finding(WHOLE, "lost: 3 words"))
    assert told.splitlines() == [f"{SEES} (in 1 of 2 cases)", "whole:", "  lost: 3 words"]
    assert checking[1][STANDING] == ["text is lost (vllm#1)"]


@pytest.mark.parametrize("checking", [None, "0.29.0"], indirect=True)
def test_another_version_knows_nothing(checking: Check) -> None:
    told = failure(checking, Finding(STREAMED, "lost: 5 words"))
    assert told.splitlines() == [
        f"{SEES} (in 1 of 2 cases)",
        "streamed:",
        "  lost: 5 words",
        '  asked with: {"stream": true}',
    ]


def test_many_failures_are_told_by_name_and_long_requests_are_cut(checking: Check) -> None:
    cases = [Case(f"case {number}", request={"a": "x" * 5000}) for number in range(20)]
    told = failure(checking, *(Finding(case, "it broke") for case in cases)).splitlines()
    assert told[-1] == f"and {20 - CASES_NAMED} more"
    assert len([line for line in told if line.startswith("case ")]) == CASES_NAMED
    assert max(map(len, told)) <= REQUEST_CHARACTERS + len("  asked with: ")
