"""A second boot that answers differently is reported with the question."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import checks
from pytest_vllm_gates.lifecycle.types import CacheBoot

ALONE = Completion(content="Paris.", finish_reason="stop", token_ids=(1, 2))


def test_equal_answers_yield_no_finding() -> None:
    findings, cases = checks.same_answers([("France?", ALONE)], [ALONE], invariant=True)
    assert findings == []
    assert [case.name for case in cases] == ["France?"]


def test_a_different_answer_is_reported_with_its_question() -> None:
    other = Completion(content="Rome.", finish_reason="stop", token_ids=(1, 3))
    (finding,), _ = checks.same_answers([("France?", ALONE)], [other], invariant=True)
    assert finding.case.name == "France?"
    assert "alone 'Paris.', now 'Rome.'" in finding.says


def test_a_question_without_a_first_answer_is_not_compared() -> None:
    silent = Completion(error="answered 500")
    findings, cases = checks.same_answers([("France?", silent)], [ALONE], invariant=True)
    assert (findings, cases) == ([], [])


@pytest.mark.parametrize(("invariant", "told"), [(True, True), (False, False)])
def test_log_probabilities_of_the_same_tokens_may_differ_by_rounding(
    invariant: bool, told: bool
) -> None:
    first = replace(ALONE, candidates=({1: -0.1}, {2: -0.2}))
    again = replace(ALONE, candidates=({1: -0.1}, {2: -0.3}))
    findings, _ = checks.same_answers([("France?", first)], [again], invariant=invariant)
    assert bool(findings) is told
    assert all("0.10 nats apart" in finding.says for finding in findings)
    assert checks.same_answers([("France?", first)], [first], invariant=True)[0] == []


def test_a_boot_that_does_not_serve_is_reported_with_its_caches() -> None:
    boots = [CacheBoot("1 file cut", "it died", ()), CacheBoot("alone", "", (ALONE,))]
    (finding,), cases = checks.cache_boots([("France?", ALONE)], boots, invariant=True)
    assert (finding.case.name, finding.says) == ("1 file cut", "it does not serve: it died")
    assert [case.name for case in cases] == ["1 file cut", "alone", "France? (alone)"]
