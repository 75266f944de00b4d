"""Faults that the vision gate finds in the scores of prompts with pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_vllm_gates.numerics.checks import tolerance_of
from pytest_vllm_gates.numerics.types import ReferenceScores, Scores
from pytest_vllm_gates.vision import checks_scored, scored

ALLOWED = tolerance_of("bfloat16")
RED = scored.CASES[0]
CASES = {RED.name: RED}
SCORES = Scores((1, 7, 7, 2), (-0.1, -0.2, -3.0), (5, 6), (-0.01, -0.02), (9.0, 9.0))
REFERENCE = ReferenceScores("abc", "transformers", {RED.name: SCORES})


def says(served: dict[str, Scores], reference: ReferenceScores = REFERENCE) -> list[str]:
    found = checks_scored.findings(CASES, served, reference, ALLOWED)
    return [finding.says for finding in found]


def test_equal_scores_have_no_fault() -> None:
    near = replace(SCORES, prompt_logprobs=(-0.12, -0.2, -3.1))
    assert says({RED.name: near}) == []


def test_another_score_of_an_image_token_is_a_finding() -> None:
    (found,) = says({RED.name: replace(SCORES, prompt_logprobs=(-0.1, -9.2, -3.0))})[-1:]
    assert found == "prompt: 9.00 nats apart at position 1, 3.5 allowed"


def test_another_answer_is_a_finding() -> None:
    other = replace(SCORES, output=(8, 6))
    assert says({RED.name: other}) == [
        "answer: another token from output position 0 on, where the reference's lead was clear"
    ]


def test_a_prompt_of_other_tokens_is_a_finding() -> None:
    longer = replace(SCORES, prompt=(1, 7, 7, 7, 2), prompt_logprobs=(-0.1, -0.2, -0.2, -3.0))
    assert says({RED.name: longer}) == [
        "the prompt has 5 tokens that are not the 4 of the reference"
    ]


def test_a_prompt_without_scores_is_a_finding() -> None:
    assert says({}) == ["the server does not score it"]


def test_a_reference_without_the_case_is_a_finding() -> None:
    empty = ReferenceScores("abc", "transformers", {})
    assert says({RED.name: SCORES}, empty) == ["the recorded reference does not have it"]


def test_distances_are_listed_by_case_and_part() -> None:
    apart = checks_scored.distances({RED.name: SCORES}, REFERENCE, ALLOWED)
    assert [*apart] == [(RED.name, "prompt"), (RED.name, "answer")]
    assert all(distance.worst == pytest.approx(0) for distance in apart.values())


def test_names_of_scored_cases_differ() -> None:
    names = [case.name for case in scored.CASES]
    assert len({*names}) == len(names)
    pictures = scored.pictures()
    assert [len(pictures[case.name]) for case in scored.CASES] == [1, 1, 1, 1, 2, 1]
