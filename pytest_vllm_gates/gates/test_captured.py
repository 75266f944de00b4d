"""Requests that were captured elsewhere are answered as expected: for --repro only.

An incident of `vllm-gates capture` or `vllm-gates incident` is judged by its own expectations,
or by those for every answer: it is complete, and it makes sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.incidents.expectation import unmet
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from pytest_vllm_gates.fixtures.captured import CapturedReplay
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.captured


def test_is_answered_as_expected(
    captured: CapturedReplay, checking: Checking, evidence: Evidence
) -> None:
    evidence["expected"] = [expectation.said for expectation in captured.expectations]
    evidence["status"] = [sent.status for sent in captured.answered]
    cases = [Case(sent.name, {}) for sent in captured.answered]
    faults = [
        (case, *fault)
        for case, sent in zip(cases, captured.answered, strict=True)
        for fault in unmet(captured.expectations, sent)
    ]
    evidence["unmet"] = [f"{case.name}: {expectation.said}" for case, expectation, _ in faults]
    findings = [Finding(case, message) for case, _, message in faults]
    first = next((finding for finding in findings if not checking.knows([finding], cases)), None)
    says = first.says.removeprefix("it ") if first else ""
    checking(findings, cases, f"an answer is not as expected: {says}")
