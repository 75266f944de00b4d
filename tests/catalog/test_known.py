"""Known defects are told from new findings, and hide none of them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.catalog.known_defects import KnownDefect, SortedFindings, sort
from pytest_vllm_gates.outcomes import Case, Finding

STREAMED = Case("streamed", {"mode": "streamed", "tools": "auto"})
WHOLE = Case("whole", {"mode": "whole", "tools": "auto"})
LOST = Finding(STREAMED, "content: empty in the streamed answer")
SHORT = Finding(STREAMED, "usage: whole 5, streamed 4")


def defect(**more: Any) -> KnownDefect:
    given: dict[str, Any] = {
        "check": "a_check",
        "what": "content is lost",
        "versions": ">=0.30,<0.34",
        "reference": "vllm#1",
        "shows": "^content: empty",
        "when": {"mode": ("streamed",)},
    }
    return KnownDefect(**{**given, **more})


def sorted_out(*findings: Finding, version: str | None = "0.32.0", **more: Any) -> SortedFindings:
    return sort("a_check", findings, [STREAMED, WHOLE], [defect(**more)], version)


def test_a_finding_its_entry_describes_is_known_and_not_new() -> None:
    findings = sorted_out(LOST)
    assert (findings.new, findings.gone) == ((), ())
    ((known, some),) = findings.known
    assert known.reference == "vllm#1"
    assert some == (LOST,)


@pytest.mark.parametrize(
    "more",
    [
        {"check": "another_check"},
        {"versions": "<0.32"},
        {"versions": ">0.32.0"},
        {"shows": "reasoning"},
        {"shows": "^empty"},
        {"when": {"mode": ("whole",)}},
        {"when": {"mode": ("streamed",), "stop": ("occurs",)}},
    ],
)
def test_an_entry_covers_only_what_it_describes(more: dict[str, Any]) -> None:
    findings = sorted_out(LOST, **more)
    assert findings.new == (LOST,)
    assert findings.known == ()


def test_a_known_finding_hides_no_other_of_the_same_case() -> None:
    findings = sorted_out(LOST, SHORT)
    assert findings.new == (SHORT,)
    assert [some for _, some in findings.known] == [(LOST,)]


def test_a_known_finding_hides_not_the_same_sentence_of_another_case() -> None:
    elsewhere = Finding(WHOLE, LOST.says)
    assert sorted_out(LOST, elsewhere).new == (elsewhere,)


def test_any_of_a_traits_values_will_do() -> None:
    assert sorted_out(LOST, when={"mode": ("whole", "streamed")}).new == ()
    assert sorted_out(LOST, when={}).new == ()


def test_a_finding_that_two_entries_describe_stands_under_both() -> None:
    both = [defect(), defect(reference="vllm#2")]
    findings = sort("a_check", [LOST], [STREAMED], both, "0.32.0")
    assert [known.reference for known, _ in findings.known] == ["vllm#1", "vllm#2"]
    assert findings.new == ()


@pytest.mark.parametrize("version", ["0.30", "0.32.0", "0.33.1+cpu", "0.33.0rc1", "0.32.1.dev7"])
def test_versions_are_compared_as_packages_compare_them(version: str) -> None:
    assert sorted_out(LOST, version=version).new == ()


@pytest.mark.parametrize("version", [None, "", "nightly", "0.34.0", "0.29.9"])
def test_another_version_or_none_is_covered_by_nothing(version: str | None) -> None:
    findings = sorted_out(LOST, version=version)
    assert findings.new == (LOST,)
    assert findings.gone == ()


def test_an_entry_that_shows_no_longer_is_gone() -> None:
    assert [known_defect.reference for known_defect in sorted_out().gone] == ["vllm#1"]
    elsewhere = Finding(WHOLE, SHORT.says)
    assert [known_defect.reference for known_defect in sorted_out(elsewhere).gone] == ["vllm#1"]


def test_a_case_in_which_something_else_is_wrong_tells_of_no_entry_that_it_is_gone() -> None:
    assert sorted_out(SHORT).gone == ()
    again = Case("again", {"mode": "streamed", "tools": "auto"})
    findings = sort("a_check", [SHORT], [STREAMED, again], [defect()], "0.32.0")
    assert [known_defect.reference for known_defect in findings.gone] == ["vllm#1"]


def test_an_entry_without_a_case_is_not_gone() -> None:
    assert sort("a_check", [], [WHOLE], [defect()], "0.32.0").gone == ()
    assert sort("another", [], [STREAMED], [defect()], "0.32.0").gone == ()
    assert sort("a_check", [], [STREAMED], [defect(versions="<0.31")], "0.32.0").gone == ()
