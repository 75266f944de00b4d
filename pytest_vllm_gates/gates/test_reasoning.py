"""Thinking is in the reasoning field, the answer in content, and nothing is lost in between.

Catches reasoning parsers that disagree with the template, thinking that leaks into the answer,
answers that disappear in the thinking, and switches without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.conversations.checks import agreement, finish, reasoning, tokens
from pytest_vllm_gates.goldens import settings_golden
from pytest_vllm_gates.outcomes import Case, Finding, NotApplicable

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.conversations.continued import ContinuedAnswer
    from pytest_vllm_gates.conversations.walk import WalkResult
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.reasoning


def test_no_marker_reaches_a_field(
    walked: WalkResult, family: Family, checking: Checking, parser_hint: str
) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in walked.answered
        for fault in agreement.faults_in_every_mode(
            exchange, lambda variant: reasoning.markers(variant, family)
        )
    ]
    impact = "A user reads the model's wire format: tags of its thinking, its turns or its calls"
    checking(findings, walked.cases, impact, parser_hint)


def test_nothing_said_is_lost(
    walked: WalkResult, family: Family, checking: Checking, parser_hint: str
) -> None:
    exchanges = [exchange for exchange in walked.answered if exchange.raw is not None]
    findings = [
        Finding(exchange.case, fault)
        for exchange in exchanges
        for fault in tokens.texts(exchange, family)
    ]
    impact = "A text of the model is missing, or in the wrong field"
    checking(findings, [exchange.case for exchange in exchanges], impact, parser_hint)


def test_thinking_off_answers_at_once(walked: WalkResult, checking: Checking) -> None:
    judged = [exchange for exchange in walked.answered if not exchange.thinks]
    findings = [
        Finding(exchange.case, fault)
        for exchange in judged
        for fault in agreement.faults_in_every_mode(exchange, reasoning.without_thinking)
    ]
    impact = "With thinking off a user sees an empty answer, or waits for thinking"
    checking(findings, [exchange.case for exchange in judged], impact)


def test_thinking_on_thinks(walked: WalkResult, family: Family, checking: Checking) -> None:
    if family.thinking is None:
        raise NotApplicable(f"{family.name} does not think")
    judged = [exchange for exchange in walked.answered if exchange.thinks]
    findings = [
        Finding(exchange.case, fault)
        for exchange in judged
        for fault in agreement.faults_in_every_mode(
            exchange, lambda variant: reasoning.with_thinking(variant, family, walked.plain_thought)
        )
    ]
    impact = "Thinking was requested and is missing: the answer is that of a weaker model"
    checking(findings, [exchange.case for exchange in judged], impact)


def test_an_ended_answer_is_there(walked: WalkResult, checking: Checking) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in walked.answered
        for fault in (
            *agreement.faults_in_every_mode(exchange, finish.empty_stop),
            *agreement.faults_in_every_mode(exchange, finish.unknown_reason),
        )
    ]
    checking(findings, walked.cases, "The server reports the end, and the answer is empty")


def test_usage_counts_the_tokens(walked: WalkResult, checking: Checking) -> None:
    findings = [
        Finding(exchange.case, fault)
        for exchange in walked.answered
        for fault in finish.usage(exchange)
    ]
    checking(findings, walked.cases, "The billed tokens do not match the answer")


def test_reasoning_comes_under_the_recorded_key(
    walked: WalkResult, family: Family, golden: Goldens, evidence: Evidence
) -> None:
    if family.thinking is None:
        raise NotApplicable(f"{family.name} does not think")
    keys = {
        mode: sorted(
            {answer.reasoning_key for answer in answers if answer and answer.reasoning_key}
        )
        for mode, answers in (
            ("whole", [exchange.whole for exchange in walked.answered]),
            ("streamed", [exchange.streamed for exchange in walked.answered]),
        )
    }
    evidence["keys"] = keys
    golden.check("reasoning-key", settings_golden("the key that carries reasoning", keys))


def test_a_begun_answer_is_continued(
    continued_answers: list[ContinuedAnswer], checking: Checking, evidence: Evidence
) -> None:
    evidence["requests"] = len(continued_answers)
    evidence["contents"] = {each.name: each.answer.content for each in continued_answers}
    cases = [Case(each.name, each.traits, each.request) for each in continued_answers]
    findings = [
        Finding(case, sentence)
        for case, each in zip(cases, continued_answers, strict=True)
        for sentence in reasoning.continuation(each.answer, each.begun, each.prompt_tokens)
    ]
    impact = "A client that begins the answer reads it again, in another place, or not at all"
    checking(findings, cases, impact)
