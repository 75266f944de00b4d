"""Known defects are separated from new findings, and hide none of them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_vllm_gates.catalog.known_defects import KnownDefect, SortedFindings, sort_findings
from pytest_vllm_gates.outcomes import Case, Finding

STREAMED = Case("streamed", {"mode": "streamed", "tools": "auto"})
WHOLE = Case("whole", {"mode": "whole", "tools": "auto"})
LOST = Finding(STREAMED, "content: empty in the streamed answer")
SHORT = Finding(STREAMED, "usage: whole 5, streamed 4")


def defect(**changes: Any) -> KnownDefect:
    fields: dict[str, Any] = {
        "check": "a_check",
        "what": "content is lost",
        "versions": ">=0.30,<0.34",
        "reference": "vllm#1",
        "shows": "^content: empty",
        "when": {"mode": ("streamed",)},
    }
    return KnownDefect(**{**fields, **changes})


def sorted_out(
    *findings: Finding,
    version: str | None = "0.32.0",
    served_on: str | None = None,
    **changes: Any,
) -> SortedFindings:
    defects = [defect(**changes)]
    return sort_findings("a_check", findings, [STREAMED, WHOLE], defects, version, device=served_on)


@pytest.mark.parametrize(
    ("served_on", "known", "gone"), [("cpu", 1, 1), ("cuda", 0, 0), (None, 1, 0)]
)
def test_defect_of_one_device(served_on: str | None, known: int, gone: int) -> None:
    found = sorted_out(LOST, device="cpu", served_on=served_on)
    assert (len(found.known), len(found.new)) == (known, 1 - known)
    assert len(sorted_out(device="cpu", served_on=served_on).gone) == gone


def test_described_finding_is_known_and_not_new() -> None:
    findings = sorted_out(LOST)
    assert (findings.new, findings.gone) == ((), ())
    ((known_defect, covered),) = findings.known
    assert known_defect.reference == "vllm#1"
    assert covered == (LOST,)


@pytest.mark.parametrize(
    "changes",
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
def test_an_entry_covers_only_what_it_describes(changes: dict[str, Any]) -> None:
    findings = sorted_out(LOST, **changes)
    assert findings.new == (LOST,)
    assert findings.known == ()


def test_known_finding_does_not_hide_others_of_its_case() -> None:
    findings = sorted_out(LOST, SHORT)
    assert findings.new == (SHORT,)
    assert [covered for _, covered in findings.known] == [(LOST,)]


def test_known_finding_does_not_cover_other_cases() -> None:
    elsewhere = Finding(WHOLE, LOST.says)
    assert sorted_out(LOST, elsewhere).new == (elsewhere,)


def test_any_listed_trait_value_matches() -> None:
    assert sorted_out(LOST, when={"mode": ("whole", "streamed")}).new == ()
    assert sorted_out(LOST, when={}).new == ()


def test_finding_of_two_entries_is_listed_under_both() -> None:
    defects = [defect(), defect(reference="vllm#2")]
    findings = sort_findings("a_check", [LOST], [STREAMED], defects, "0.32.0")
    assert [known_defect.reference for known_defect, _ in findings.known] == ["vllm#1", "vllm#2"]
    assert findings.new == ()


@pytest.mark.parametrize("version", ["0.30", "0.32.0", "0.33.1+cpu", "0.33.0rc1", "0.32.1.dev7"])
def test_versions_are_compared_as_packages_compare_them(version: str) -> None:
    assert sorted_out(LOST, version=version).new == ()


@pytest.mark.parametrize("version", [None, "", "nightly", "0.34.0", "0.29.9"])
def test_other_or_unknown_version_covers_nothing(version: str | None) -> None:
    findings = sorted_out(LOST, version=version)
    assert findings.new == (LOST,)
    assert findings.gone == ()


def test_entry_without_a_finding_is_gone() -> None:
    assert [known_defect.reference for known_defect in sorted_out().gone] == ["vllm#1"]
    elsewhere = Finding(WHOLE, SHORT.says)
    assert [known_defect.reference for known_defect in sorted_out(elsewhere).gone] == ["vllm#1"]


def test_case_with_a_new_finding_does_not_mark_entries_as_gone() -> None:
    assert sorted_out(SHORT).gone == ()
    second_case = Case("again", {"mode": "streamed", "tools": "auto"})
    findings = sort_findings("a_check", [SHORT], [STREAMED, second_case], [defect()], "0.32.0")
    assert [known_defect.reference for known_defect in findings.gone] == ["vllm#1"]


def test_an_entry_without_a_case_is_not_gone() -> None:
    assert sort_findings("a_check", [], [WHOLE], [defect()], "0.32.0").gone == ()
    assert sort_findings("another", [], [STREAMED], [defect()], "0.32.0").gone == ()
    assert sort_findings("a_check", [], [STREAMED], [defect(versions="<0.31")], "0.32.0").gone == ()
