"""A second boot that gives another answer is told, and which answer it was."""

from __future__ import annotations

from pytest_vllm_gates.client.completion import Completion
from pytest_vllm_gates.lifecycle import checks

ALONE = Completion(content="Paris.", finish_reason="stop", token_ids=(1, 2))


def test_equal_answers_say_nothing() -> None:
    findings, cases = checks.second_boot([("France?", ALONE)], [ALONE], invariant=True)
    assert findings == []
    assert [case.name for case in cases] == ["France?"]


def test_another_answer_is_told_with_its_question() -> None:
    other = Completion(content="Rome.", finish_reason="stop", token_ids=(1, 3))
    (finding,), _ = checks.second_boot([("France?", ALONE)], [other], invariant=True)
    assert finding.case.name == "France?"
    assert "alone 'Paris.', now 'Rome.'" in finding.says


def test_what_the_first_did_not_answer_is_no_yardstick() -> None:
    silent = Completion(error="answered 500")
    findings, cases = checks.second_boot([("France?", silent)], [ALONE], invariant=True)
    assert (findings, cases) == ([], [])
