"""The server computes the model: its log-probabilities are those of fp32 transformers.

Catches the wrong kernel behind a fluent answer, which no health check, parser test or smoke prompt
shows: wrong positions, a cache that returns another state, an error only in batches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.numerics import checks_paired, conclusion, trusted_golden
from pytest_vllm_gates.numerics.checks import output_distance, prompt_distance, written
from pytest_vllm_gates.numerics.checks_paired import LEAST_TEXTS, Equivalence
from pytest_vllm_gates.numerics.client import compute, is_small, served_scores, weights_sha256
from pytest_vllm_gates.numerics.types import ReferenceScores
from pytest_vllm_gates.outcomes import MissingGolden, NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.conversation import Conversation
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.endpoint import Endpoint
    from pytest_vllm_gates.numerics.checks import Distance, Tolerance
    from pytest_vllm_gates.numerics.forced import ForcedRounds
    from pytest_vllm_gates.numerics.forced_types import ForcedRun
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
TRUSTED = "trusted-run"


@pytest.fixture(scope="session")
def prompts(
    subject: Subject, reference: Renderer, fitting: tuple[Conversation, ...]
) -> dict[str, tuple[tuple[int, ...], int]]:
    """Prompts by name with how much to generate: short conversations, and one long series."""
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
def computed_reference(
    subject: Subject,
    prompts: dict[str, tuple[tuple[int, ...], int]],
    interpreter: Path | None,
    overlay: Path | None,
) -> ReferenceScores | None:
    """The reference that is computed now; None if the weights are too large or not here."""
    if interpreter is None or not is_small(subject.checkpoint):
        return None
    return compute(subject.checkpoint, interpreter, overlay, prompts)


@pytest.fixture
def reference_scores(
    request: pytest.FixtureRequest, subject: Subject, golden: Goldens
) -> ReferenceScores:
    """The recorded reference; without one, or when recording, a computed one."""
    recorded = golden.reference(GOLDEN, weights_sha256(subject.checkpoint))
    if recorded:
        return recorded
    scores: ReferenceScores | None = request.getfixturevalue("computed_reference")
    if scores is None and golden.recording:
        scores = request.getfixturevalue("served_reference")
    if scores is None:
        if golden.shows:
            served = request.getfixturevalue("served_reference")
            golden.show(GOLDEN, written(subject.family.title, served))
        raise MissingGolden(f"no golden {GOLDEN!r}; record it on a trusted lane: {golden.command}")
    if golden.recording:
        golden.record(GOLDEN, written(subject.family.title, scores))
    return scores


@pytest.fixture
def served_reference(
    server: Endpoint, subject: Subject, prompts: dict[str, tuple[tuple[int, ...], int]]
) -> ReferenceScores:
    """The scores of this server, to be recorded if transformers cannot run the model."""
    return ReferenceScores(
        weights=weights_sha256(subject.checkpoint) or "unknown",
        source="the server of a lane that was trusted when this was recorded",
        cases={
            name: served_scores(server, ids, count, score_prompt=True)
            for name, (ids, count) in prompts.items()
        },
    )


def test_prompt_is_scored_as_by_the_reference(
    server: Endpoint, reference_scores: ReferenceScores, tolerance: Tolerance, evidence: Evidence
) -> None:
    distances = {
        name: prompt_distance(served_scores(server, case.prompt, 1, score_prompt=True), case)
        for name, case in reference_scores.cases.items()
    }
    check_distances(distances, tolerance, evidence)


@pytest.mark.parametrize("prefix", ["cold", "warm"])
def test_output_is_scored_as_by_the_reference(
    prefix: str,
    server: Endpoint,
    reference_scores: ReferenceScores,
    tolerance: Tolerance,
    evidence: Evidence,
) -> None:
    evidence["prefix"] = prefix
    check_distances(
        {
            name: output_distance(continuation(server, case), case, tolerance)
            for name, case in reference_scores.cases.items()
        },
        tolerance,
        evidence,
    )


def test_output_in_a_batch_is_scored_as_by_the_reference(
    server: Endpoint, reference_scores: ReferenceScores, tolerance: Tolerance, evidence: Evidence
) -> None:
    names = [name for name in reference_scores.cases if name != LONG]
    batch = [names[i % len(names)] for i in range(BATCH)]
    with ThreadPoolExecutor(BATCH) as pool:
        continuations = list(
            pool.map(lambda name: continuation(server, reference_scores.cases[name]), batch)
        )
    distances = {
        f"{name} ({i})": output_distance(scores, reference_scores.cases[name], tolerance)
        for i, (name, scores) in enumerate(zip(batch, continuations, strict=True))
    }
    check_distances(distances, tolerance, evidence)


def test_scores_are_those_of_the_trusted_run(
    *,
    request: pytest.FixtureRequest,
    subject: Subject,
    lane: Lane,
    golden: Goldens,
    interpreter: Path | None,
    overlay: Path | None,
    evidence: Evidence,
) -> None:
    text = None if golden.recording else golden.recorded(TRUSTED)
    if text is None and not (golden.recording or golden.shows):
        raise NotApplicable(
            "no trusted run to compare with; name the lane that you trust with --against, or "
            f"record one there: {golden.command}"
        )
    rounds: ForcedRounds = request.getfixturevalue("forced_rounds")
    if golden.recording:
        golden.record(TRUSTED, trusted_golden.written(subject.family.title, rounds.whole()))
        return
    if text is None:
        golden.show(TRUSTED, trusted_golden.written(subject.family.title, rounds.whole()))
        raise NotApplicable("its scores were written for the lane that is compared with this one")
    try:
        trusted = trusted_golden.parsed(text)
    except ValueError as error:
        pytest.fail(f"the golden {TRUSTED!r} cannot be read: {error}", pytrace=False)
    if why := conclusion.incomparable(trusted, rounds.nothing):
        raise NotApplicable(f"{why}; record a trusted run of this: {golden.command}")
    scale = lane.numerics.other_machine.get(subject.family.name)
    now, comparisons = checks_paired.until_different(trusted, rounds, scale)
    if len(checks_paired.paired(trusted, now)) < LEAST_TEXTS:
        raise NotApplicable(
            "the tokenizer produces other tokens for the texts than in the trusted run; record a "
            f"trusted run of this: {golden.command}"
        )
    if (
        not checks_paired.same_build(trusted, now)
        and any(comparison.answer is not Equivalence.EQUIVALENT for comparison in comparisons)
        and interpreter
        and is_small(subject.checkpoint)
    ):
        rounding = roundings(trusted, subject, interpreter, overlay)
        comparisons = checks_paired.compare(trusted, now, rounding, scale)
    evidence["tokens"], evidence["builds"] = now.tokens, [trusted.build, now.build]
    evidence["texts"] = len(now.texts)
    evidence["comparisons"] = [comparison.as_evidence() for comparison in comparisons]
    source = conclusion.Trusted(
        subject.family.name, lane.name, golden.ships(TRUSTED), golden.command
    )
    conclusion.conclude(trusted, now, comparisons, source)


def roundings(
    trusted: ForcedRun, subject: Subject, interpreter: Path, overlay: Path | None
) -> dict[str, float]:
    """Return by text the distance of the trusted run from fp32, in nats."""
    prompts = {text.name: (text.ids, 1) for text in trusted.texts}
    exact = compute(subject.checkpoint, interpreter, overlay, prompts).cases
    return {
        text.name: checks_paired.distance(text.alone, exact[text.name].prompt_logprobs)
        for text in trusted.texts
    }


def continuation(server: Endpoint, case: Scores) -> Scores:
    """Return the served scores of a case's greedy continuation."""
    return served_scores(server, case.prompt, len(case.output), score_prompt=False)


def check_distances(
    distances: Mapping[str, Distance], allowed: Tolerance, evidence: Evidence
) -> None:
    """Fail if a distance is beyond the tolerance; record the distances first."""
    evidence["tolerance_nats"] = allowed.model_dump()
    evidence["distance_nats"] = {name: asdict(distance) for name, distance in distances.items()}
    faults = {name: distance.faults(allowed) for name, distance in distances.items()}
    bad = [f"{name}: {'; '.join(sentences)}" for name, sentences in faults.items() if sentences]
    assert not bad, (
        f"{len(bad)} of {len(distances)} prompts have scores that differ from the reference:\n"
        + "\n".join(bad)
        + "\na kernel, a cast or a cache is wrong: the answers may still look good"
    )
