"""An answer in a format is exactly that, in content, with the thinking kept apart.

Catches JSON in the reasoning, grammars that a reasoning parser switches off, and formats that
silently switch thinking off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.conversations import formats
from pytest_vllm_gates.conversations.checks import content
from pytest_vllm_gates.conversations.chosen_texts import changed
from pytest_vllm_gates.outcomes import Case, Finding, Inconclusive

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Exchange
    from pytest_vllm_gates.conversations.chosen_texts import ChosenAnswer
    from pytest_vllm_gates.conversations.formats import FormattedAnswer
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.structured


def test_json_is_one_value_that_validates(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    judged = complete_answers(walked, "json_schema", evidence)
    findings = [
        Finding(exchange.case, fault)
        for exchange in judged
        for fault in content.json_value(exchange)
    ]
    checking(
        findings, [exchange.case for exchange in judged], "A program that reads the JSON fails"
    )


def test_text_matches_its_pattern(
    walked: WalkResult, checking: Checking, evidence: Evidence
) -> None:
    judged = complete_answers(walked, "regex", evidence)
    findings = [
        Finding(exchange.case, fault) for exchange in judged for fault in content.pattern(exchange)
    ]
    checking(
        findings, [exchange.case for exchange in judged], "A program that reads the answer fails"
    )


def test_unlikely_formats_are_kept(
    formatted_answers: list[FormattedAnswer], checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = len(formatted_answers)
    evidence["contents"] = {one.name: one.answer.content[:80] for one in formatted_answers}
    ended = [one for one in formatted_answers if one.answer.finish_reason != "length"]
    if formatted_answers and not ended:
        raise Inconclusive("all answers were cut by the limit of tokens: raise --answer-tokens")
    cases = [Case(one.name, one.traits, one.request) for one in ended]
    findings = [
        Finding(case, sentence)
        for case, one in zip(cases, ended, strict=True)
        for sentence in content.not_as_requested(
            one.answer, one.format, formats.WORDS, formats.REGEX
        )
    ]
    checking(findings, cases, "A program that reads the answer gets another format")


def test_chosen_texts_arrive_as_they_are(
    chosen_texts: list[ChosenAnswer], checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = len(chosen_texts)
    ended = [one for one in chosen_texts if not one.is_cut]
    if chosen_texts and not ended:
        raise Inconclusive("all answers were cut by the limit of tokens: raise --answer-tokens")
    findings = [Finding(one.case, sentence) for one in ended for sentence in changed(one)]
    cases = [one.case for one in ended]
    checking(findings, cases, "A client gets another text than the model wrote")


def test_no_formatted_answer_runs_into_blanks(
    walked: WalkResult, formatted_answers: list[FormattedAnswer], checking: Checking
) -> None:
    answers = [
        (exchange.case, answer)
        for exchange in walked.answered
        if exchange.cell.format != "text"
        for answer in (exchange.whole, exchange.streamed, exchange.widened)
        if answer
    ]
    answers += [(Case(one.name, one.traits, one.request), one.answer) for one in formatted_answers]
    findings = [
        Finding(case, sentence) for case, answer in answers for sentence in content.blanks(answer)
    ]
    cases = list({case.name: case for case, _ in answers}.values())
    checking(findings, cases, "A program waits for endless white space, and pays for it")


def complete_answers(walked: WalkResult, kind: str, evidence: Evidence) -> list[Exchange]:
    """Return the answers of a format that reached their end.

    Raises `Inconclusive` if the limit cut all of them.
    """
    exchanges = [exchange for exchange in walked.answered if exchange.cell.format == kind]
    cut = [exchange.cell.name for exchange in exchanges if exchange.cut]
    evidence["cut_by_the_limit"] = cut
    if exchanges and len(cut) == len(exchanges):
        raise Inconclusive(
            f"all {len(cut)} answers were cut by the limit of {walked.max_tokens} tokens: "
            "raise --answer-tokens"
        )
    return [exchange for exchange in exchanges if content.is_judgeable(exchange)]
