"""A stop ends the answer at its first occurrence, is not shown, and changes no answer without it.

Catches stop buffers that desynchronise text and tokens, stop lists that swallow the reply, and
limits that are not reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.conversations.checks import agreement, finish, stops
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.conversations.limits import LimitedAnswer, Pieces
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.stop

NAMES = ("max_tokens", "max_completion_tokens")


@pytest.fixture
def with_stop(walked: WalkResult) -> list[Exchange]:
    """The answers to requests with a stop."""
    return [exchange for exchange in walked.answered if exchange.stop is not None]


def test_stop_string_is_not_in_the_answer(with_stop: list[Exchange], checking: Checking) -> None:
    judged = [exchange for exchange in with_stop if isinstance(exchange.stop, str)]
    findings = [
        Finding(exchange.case, fault)
        for exchange in judged
        for fault in stops.stop_in_fields(exchange)
    ]
    checking(
        findings,
        [exchange.case for exchange in judged],
        "A user sees the stop string that should end the answer",
    )


def test_answer_ends_at_its_stop(with_stop: list[Exchange], checking: Checking) -> None:
    judged = [exchange for exchange in with_stop if exchange.cell.stop != "never"]
    findings = [
        Finding(exchange.case, fault) for exchange in judged for fault in stops.wrong_end(exchange)
    ]
    impact = "The answer ends too early or too late, or the stop swallows it"
    checking(findings, [exchange.case for exchange in judged], impact)


def test_stop_that_never_occurs_changes_nothing(
    with_stop: list[Exchange], checking: Checking
) -> None:
    judged = [exchange for exchange in with_stop if exchange.cell.stop == "never"]
    findings = [
        Finding(exchange.case, fault)
        for exchange in judged
        for fault in stops.changed_by_unused_stop(exchange)
    ]
    impact = "A stop list that does not concern the answer changes it"
    checking(findings, [exchange.case for exchange in judged], impact)


def test_any_piece_of_the_answer_stops_it(
    stop_pieces: Pieces, family: Family, checking: Checking, evidence: Evidence
) -> None:
    if not stop_pieces.plain.has_text:
        raise Inconclusive("the answer without a stop is empty: there is nothing to stop at")
    cases: list[Case] = []
    findings: list[Finding] = []
    for stop, answer, request in stop_pieces.ask_all():
        traits = {"case": "a tag holds it"} if stops.in_a_tag(stop, family) else {}
        case = Case(f"stop {stop!r}", {"stop": "any", **traits}, request)
        cases.append(case)
        findings.extend(
            Finding(case, fault) for fault in stops.cut_at_first(stop, answer, stop_pieces.plain)
        )
    evidence["stops"] = [case.name for case in cases]
    checking(findings, cases, "The answer does not end where a stop string first occurs")


def test_limit_is_kept_and_told(
    limited_answers: list[LimitedAnswer], checking: Checking, evidence: Evidence
) -> None:
    evidence["limits"] = [answer.max_tokens for answer in limited_answers]
    cases, findings = limit_findings(limited_answers)
    checking(findings, cases, "A user cannot distinguish a whole answer from one that was cut")


def test_both_names_of_the_limit_mean_the_same(
    answers_by_limit_name: list[LimitedAnswer], checking: Checking, evidence: Evidence
) -> None:
    if not answers_by_limit_name:
        raise Inconclusive("the answer is too short to be cut, or the server counts no tokens")
    evidence["requests"] = len(answers_by_limit_name) + 1
    cases, findings = limit_findings(answers_by_limit_name)
    first = {answer.mode: answer for answer in answers_by_limit_name if answer.kind == "max_tokens"}
    findings += [
        Finding(case, sentence)
        for case, answer in zip(cases, answers_by_limit_name, strict=True)
        if answer.kind == "max_completion_tokens"
        # Others were generated differently, or lost in between, which the streaming gate reports.
        and first[answer.mode].answer.token_ids == answer.answer.token_ids
        for sentence in agreement.differences(first[answer.mode].answer, answer.answer, NAMES)
    ]
    checking(findings, cases, "A client that uses the other name of the limit gets another answer")


def test_a_cut_call_is_told(
    limited_calls: list[LimitedAnswer], checking: Checking, evidence: Evidence
) -> None:
    if not limited_calls:
        raise Inconclusive("no call came, or the server counts no tokens: there is nothing to cut")
    evidence["limits"] = [call.max_tokens for call in limited_calls]
    cases, findings = limit_findings(limited_calls)
    checking(findings, cases, "An agent acts on half a call: it is reported as whole")


def test_what_is_cut_is_the_answers_beginning(
    limited_answers: list[LimitedAnswer], family: Family, checking: Checking, evidence: Evidence
) -> None:
    under = [answer for answer in limited_answers if answer.due == "length"]
    cut = [answer for answer in under if finish.comparable(answer.answer, answer.plain)]
    evidence["generated_differently"] = len(under) - len(cut)
    if under and not cut:
        raise Inconclusive("every answer that was cut was generated differently from the whole one")
    cases = limit_cases(cut)
    findings = [
        Finding(case, sentence)
        for case, answer in zip(cases, cut, strict=True)
        for sentence in finish.beginning(answer.answer, answer.plain, family)
    ]
    checking(
        findings, cases, "Thinking that was cut is shown as the answer, or the answer is hidden"
    )


def limit_findings(limited_answers: list[LimitedAnswer]) -> tuple[list[Case], list[Finding]]:
    """Return the cases, and the findings on limits that were not kept or not reported."""
    cases = limit_cases(limited_answers)
    findings = [
        Finding(case, sentence)
        for case, answer in zip(cases, limited_answers, strict=True)
        for sentence in (
            *finish.limit(answer.answer, answer.max_tokens, answer.least),
            *finish.wrong_reason(answer.answer, answer.due),
        )
    ]
    return cases, findings


def limit_cases(limited_answers: list[LimitedAnswer]) -> list[Case]:
    """Return the requests under limits as cases."""
    return [
        Case(answer.name, {"limit": answer.kind, "answer": answer.mode}, answer.request)
        for answer in limited_answers
    ]
