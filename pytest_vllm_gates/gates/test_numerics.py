"""The server computes what the model is: its log-probabilities are those of fp32 transformers.

Catches the wrong kernel behind a fluent answer, which no health check, parser test or smoke prompt
shows: positions that are off, a cache that returns another state, an error only batches see.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.numerics import checks as numerics_checks, client as numerics_client
from pytest_vllm_gates.numerics.types import ReferenceScores
from pytest_vllm_gates.outcomes import MissingGolden

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.numerics.checks import Distance, Tolerance
    from pytest_vllm_gates.numerics.types import Scores
    from pytest_vllm_gates.prompts.reference import ReferenceRenderer as Renderer
    from pytest_vllm_gates.session.golden_files import Goldens
    from pytest_vllm_gates.session.items import Evidence
    from pytest_vllm_gates.session.run import Subject

pytestmark = pytest.mark.numerics

CASES = 8
LONG = "long"
LONG_TOKENS = 1500
LONG_OUTPUT_TOKENS = 4
OUTPUT_TOKENS = 16
BATCH = 8
GOLDEN = "numerics"


@pytest.fixture(scope="session")
def prompts(
    subject: Subject, reference: Renderer, fitting: tuple[Conversation, ...]
) -> dict[str, tuple[tuple[int, ...], int]]:
    """Prompts by name with how much to generate: short conversations, and one long run of them."""
    rendered = {
        conversation.name: reference.render(conversation.body(subject.family)).token_ids
        for conversation in fitting
        if conversation.ask
    }
    chosen = {name: (ids, OUTPUT_TOKENS) for name, ids in list(rendered.items())[:CASES]}
    together = [token for ids in rendered.values() for token in ids]
    repeats = -(-LONG_TOKENS // len(together))
    return {**chosen, LONG: (tuple((together * repeats)[:LONG_TOKENS]), LONG_OUTPUT_TOKENS)}


@pytest.fixture(scope="session")
def computed(
    subject: Subject,
    prompts: dict[str, tuple[tuple[int, ...], int]],
    interpreter: Path | None,
    overlay: Path | None,
) -> ReferenceScores | None:
    """The reference computed here and now; None where the weights are too large or not here."""
    if interpreter is None or not numerics_client.is_small(subject.checkpoint):
        return None
    return numerics_client.compute(subject.checkpoint, interpreter, overlay, prompts)


@pytest.fixture
def scored(request: pytest.FixtureRequest, subject: Subject, golden: Goldens) -> ReferenceScores:
    """The recorded reference; without one, or when recording, one that is computed."""
    recorded = golden.reference(GOLDEN, numerics_client.weights_sha256(subject.checkpoint))
    if recorded:
        return recorded
    scores: ReferenceScores | None = request.getfixturevalue("computed")
    if scores is None and golden.recording:
        scores = request.getfixturevalue("served")
    if scores is None:
        raise MissingGolden(f"no golden {GOLDEN!r}; record it on a trusted lane: {golden.command}")
    if golden.recording:
        golden.record(GOLDEN, numerics_checks.written(subject.family.title, scores))
    return scores


@pytest.fixture
def served(
    server: Endpoint, subject: Subject, prompts: dict[str, tuple[tuple[int, ...], int]]
) -> ReferenceScores:
    """What this server says, to be recorded where nothing better can be had."""
    return ReferenceScores(
        weights=numerics_client.weights_sha256(subject.checkpoint) or "unknown",
        source="the server of a lane that was trusted when this was recorded",
        cases={
            name: numerics_client.serve(server, ids, count, score_prompt=True)
            for name, (ids, count) in prompts.items()
        },
    )


def test_prompt_is_scored_as_by_the_reference(
    server: Endpoint, scored: ReferenceScores, tolerance: Tolerance, evidence: Evidence
) -> None:
    found = {
        name: numerics_checks.prompt_distance(
            numerics_client.serve(server, case.prompt, 1, score_prompt=True), case
        )
        for name, case in scored.cases.items()
    }
    judge(found, tolerance, evidence)


@pytest.mark.parametrize("prefix", ["cold", "warm"])
def test_output_is_scored_as_by_the_reference(
    prefix: str, server: Endpoint, scored: ReferenceScores, tolerance: Tolerance, evidence: Evidence
) -> None:
    evidence["prefix"] = prefix
    judge(
        {
            name: numerics_checks.output_distance(continued(server, case), case, tolerance)
            for name, case in scored.cases.items()
        },
        tolerance,
        evidence,
    )


def test_output_in_a_batch_is_scored_as_by_the_reference(
    server: Endpoint, scored: ReferenceScores, tolerance: Tolerance, evidence: Evidence
) -> None:
    names = [name for name in scored.cases if name != LONG]
    batch = [names[i % len(names)] for i in range(BATCH)]
    with ThreadPoolExecutor(BATCH) as pool:
        served = list(pool.map(lambda name: continued(server, scored.cases[name]), batch))
    found = {
        f"{name} ({i})": numerics_checks.output_distance(scores, scored.cases[name], tolerance)
        for i, (name, scores) in enumerate(zip(batch, served, strict=True))
    }
    judge(found, tolerance, evidence)


def continued(server: Endpoint, case: Scores) -> Scores:
    return numerics_client.serve(server, case.prompt, len(case.output), score_prompt=False)


def judge(found: Mapping[str, Distance], allowed: Tolerance, evidence: Evidence) -> None:
    evidence["tolerance_nats"] = allowed.model_dump()
    evidence["distance_nats"] = {name: asdict(distance) for name, distance in found.items()}
    faults = {name: distance.faults(allowed) for name, distance in found.items()}
    bad = [f"{name}: {'; '.join(sentences)}" for name, sentences in faults.items() if sentences]
    assert not bad, (
        f"{len(bad)} of {len(found)} prompts are computed otherwise than by the reference:\n"
        + "\n".join(bad)
        + "\na kernel, a cast or a cache is wrong: the answers may still read well"
    )
