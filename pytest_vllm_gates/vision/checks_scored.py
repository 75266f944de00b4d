"""Decides whether prompts with pictures are scored as transformers in fp32 scores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.numerics.checks import output_distance, prompt_distance
from pytest_vllm_gates.outcomes import Case, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.numerics.checks import Distance, Tolerance
    from pytest_vllm_gates.numerics.types import ReferenceScores, Scores
    from pytest_vllm_gates.vision.cases import VisionCase

PROMPT, ANSWER = "prompt", "answer"


def distances(
    served: Mapping[str, Scores], reference: ReferenceScores, allowed: Tolerance
) -> dict[tuple[str, str], Distance]:
    """Return how far each prompt and its answer are from the reference, by case and part.

    A prompt whose tokens differ from the reference's has no distance: see `findings`.
    """
    apart: dict[tuple[str, str], Distance] = {}
    for name, scores in served.items():
        expected = reference.cases.get(name)
        if expected is not None and scores.prompt == expected.prompt:
            apart[name, PROMPT] = prompt_distance(scores, expected)
            apart[name, ANSWER] = output_distance(scores, expected, allowed)
    return apart


def findings(
    cases: Mapping[str, VisionCase],
    served: Mapping[str, Scores],
    reference: ReferenceScores,
    allowed: Tolerance,
) -> Iterator[Finding]:
    """Yield what exceeds the tolerance; `cases` are all requested ones, by name."""
    apart = distances(served, reference, allowed)
    for name, case in cases.items():
        scores, expected = served.get(name), reference.cases.get(name)
        if scores is None:
            yield Finding(finding_case(case), "the server does not score it")
        elif expected is None:
            yield Finding(finding_case(case), "the recorded reference does not have it")
        elif scores.prompt != expected.prompt:
            says = (
                f"the prompt has {len(scores.prompt)} tokens that are not the "
                f"{len(expected.prompt)} of the reference"
            )
            yield Finding(finding_case(case), says)
        for part in (PROMPT, ANSWER):
            if distance := apart.get((name, part)):
                for fault in distance.faults(allowed):
                    yield Finding(finding_case(case), f"{part}: {fault}")


def finding_case(case: VisionCase) -> Case:
    """Return a case about pictures as a case of this check."""
    return Case(f"scored: {case.name}", {"kind": case.kind, "picture": case.name})
