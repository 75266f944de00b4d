"""An answer in a format is exactly that, in content, with the thinking kept apart.

Catches JSON that lands in the reasoning, grammars that a reasoning parser switches off, and
formats that silently switch thinking off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.conversations.checks import content
from pytest_vllm_gates.outcomes import Finding, Inconclusive

if TYPE_CHECKING:
    from pytest_vllm_gates.client.answer import Exchange
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


def complete_answers(walked: WalkResult, kind: str, evidence: Evidence) -> list[Exchange]:
    """Return the answers of a format that came to their end.

    Raises `Inconclusive` when the limit cut all of them.
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
