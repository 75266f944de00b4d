"""A second boot that answers differently is reported with the question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import known_defects
from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import checks
from pytest_vllm_gates.lifecycle.types import CacheBoot

if TYPE_CHECKING:
    from pathlib import Path

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
    (finding,), cases = checks.cache_boots(
        [("France?", ALONE)], boots, invariant=True, compiles=True
    )
    assert (finding.case.name, finding.says) == ("1 file cut", "it does not serve: it died")
    assert [case.name for case in cases] == ["1 file cut", "alone", "France? (alone)"]


@pytest.mark.parametrize("compiles", [True, False])
def test_a_small_distance_on_garbled_caches_is_known_of_servers_that_compile(
    compiles: bool, tmp_path: Path
) -> None:
    first = replace(ALONE, candidates=({1: -0.1}, {2: -0.2}))
    boot = CacheBoot("1 file cut", "", (replace(first, candidates=({1: -0.1}, {2: -0.25})),))
    judged = checks.cache_boots([("France?", first)], [boot], invariant=True, compiles=compiles)
    shipped = known_defects.load_all(tmp_path)
    sorted_findings = known_defects.sort_findings(
        "boots_on_garbled_caches", *judged, shipped, "0.32.0", device="cpu"
    )
    assert bool(sorted_findings.known) is compiles
    assert bool(sorted_findings.new) is not compiles
    assert sorted_findings.gone == ()  # a server that does not compile cannot have it
