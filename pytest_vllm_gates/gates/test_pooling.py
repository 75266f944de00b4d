"""A text has the same vector in every request, and it is the one that transformers computes.

Catches a prefix cache that changes vectors, batches in another order, another pooler or missing
normalisation after an upgrade, vectors of each token instead of one of the text, and scores that
do not follow from the vectors. Such a server is healthy, and its search finds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.outcomes import NotApplicable
from pytest_vllm_gates.pooling import checks, checks_classes, classes, types

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.fixtures.checking import Checking
    from pytest_vllm_gates.pooling.classes import ClassesWalk
    from pytest_vllm_gates.pooling.golden import TrustedVectors
    from pytest_vllm_gates.pooling.plan import Limits
    from pytest_vllm_gates.pooling.types import PoolingWalk
    from pytest_vllm_gates.session.items import Evidence

pytestmark = pytest.mark.pooling


def test_vectors_have_their_length(
    *,
    pooled: PoolingWalk,
    family: Family,
    width: int | None,
    limits: Limits,
    checking: Checking,
    evidence: Evidence,
) -> None:
    assert family.pooling is not None
    evidence["requests"] = pooled.requests
    evidence["seconds"] = round(pooled.seconds, 1)
    evidence["width"] = width
    seen = pooled.of(types.ALONE)
    findings = [
        *checks.answered(seen),
        *checks.shapes(pooled, family.pooling, width, limits),
    ]
    checking(findings, [each.case for each in seen], "A vector does not have the required form")


def test_texts_have_vectors_of_their_own(
    pooled: PoolingWalk, limits: Limits, checking: Checking
) -> None:
    seen = pooled.of(types.ALONE)
    checking(
        [*checks.apart(pooled, limits)],
        [each.case for each in seen],
        "Different texts have the same vector",
    )


def test_vectors_are_the_models(
    *,
    pooled: PoolingWalk,
    trusted_vectors: TrustedVectors,
    limits: Limits,
    checking: Checking,
    evidence: Evidence,
) -> None:
    alone, trusted = pooled.alone(), trusted_vectors.vectors
    shared = alone.keys() & trusted
    evidence["trusted"] = trusted_vectors.source
    evidence["farthest"] = max(
        (checks.distance(alone[name], trusted[name]) for name in shared), default=None
    )
    seen = [each for each in pooled.of(types.ALONE) if each.name in trusted]
    checking(
        [*checks.reference(pooled, trusted_vectors, limits)],
        [each.case for each in seen],
        "The vectors are not this model's: they do not fit an existing index",
    )


def test_a_text_keeps_its_vector(pooled: PoolingWalk, limits: Limits, checking: Checking) -> None:
    seen = pooled.of(types.AGAIN)
    checking(
        [*checks.same_texts(pooled, types.AGAIN, limits)],
        [each.case for each in seen],
        "A text that was sent before has another vector",
    )


def test_a_batch_holds_each_texts_vector(
    pooled: PoolingWalk, limits: Limits, checking: Checking
) -> None:
    seen = pooled.of(types.BATCH)
    checking(
        [*checks.batches(pooled, limits)],
        [each.case for each in seen],
        "In a batch a text has another vector",
    )


def test_company_keeps_vectors_apart(
    pooled: PoolingWalk, limits: Limits, checking: Checking
) -> None:
    seen = pooled.of(types.COMPANY)
    checking(
        [*checks.same_texts(pooled, types.COMPANY, limits)],
        [each.case for each in seen],
        "Among concurrent requests a text has another vector",
    )


def test_every_form_holds_the_same_numbers(
    pooled: PoolingWalk, limits: Limits, checking: Checking
) -> None:
    seen = pooled.of(types.FORM)
    checking(
        [*checks.forms(pooled, limits)],
        [each.case for each in seen],
        "The same text has another vector in another form of request",
    )


def test_long_texts_are_cut_as_asked(
    pooled: PoolingWalk, limits: Limits, checking: Checking
) -> None:
    seen = pooled.of(types.LONG)
    checking(
        [*checks.long_texts(pooled, limits)],
        [each.case for each in seen],
        "A text that is cut has the vector of another text",
    )


def test_questions_find_their_documents(pooled: PoolingWalk, checking: Checking) -> None:
    seen = [each for each in pooled.of(types.ALONE) if each.name.startswith("question ")]
    checking(
        [*checks.found(pooled)],
        [each.case for each in seen],
        "A search finds another document than the one that answers",
    )


def test_scores_follow_from_the_vectors(
    pooled: PoolingWalk, limits: Limits, checking: Checking, evidence: Evidence
) -> None:
    evidence["scores"] = {each.case.name: each.scores for each in pooled.scored}
    checking(
        [*checks.scores(pooled, limits)],
        [each.case for each in checks.offered(pooled)],
        "Documents are not in the order of their vectors' scores",
    )


def test_bad_requests_are_refused(pooled: PoolingWalk, checking: Checking) -> None:
    seen = pooled.of(types.REFUSED)
    checking(
        [*checks.refusals(pooled)],
        [each.case for each in seen],
        "An input that cannot be embedded is not refused correctly",
    )


def test_classes_have_their_form(
    *,
    classed: ClassesWalk,
    labels: tuple[str, ...],
    limits: Limits,
    checking: Checking,
    evidence: Evidence,
) -> None:
    evidence["requests"] = classed.requests
    evidence["seconds"] = round(classed.seconds, 1)
    seen = classed.of(types.ALONE)
    checking(
        [*checks_classes.forms(classed, labels, limits)],
        [each.case for each in seen],
        "A label or a score does not have the required form",
    )


def test_scores_tell_inputs_apart(classed: ClassesWalk, checking: Checking) -> None:
    checking(
        [*checks_classes.differing(classed)],
        [each.case for each in classed.of(types.ALONE)],
        "A relevant document does not score higher than an irrelevant one",
    )


def test_classes_are_the_models(
    *,
    classed: ClassesWalk,
    trusted_vectors: TrustedVectors,
    limits: Limits,
    checking: Checking,
    evidence: Evidence,
) -> None:
    alone, trusted = classed.alone(), trusted_vectors.vectors
    evidence["trusted"] = trusted_vectors.source
    evidence["farthest"] = max(
        (checks_classes.apart(alone[name], trusted[name]) for name in alone.keys() & trusted),
        default=None,
    )
    checking(
        [*checks_classes.reference(classed, trusted_vectors, limits)],
        [each.case for each in classed.of(types.ALONE) if each.name in trusted],
        "The scores are not this model's: existing thresholds do not fit them",
    )


def test_an_input_keeps_its_classes(
    classed: ClassesWalk, limits: Limits, checking: Checking
) -> None:
    groups = (types.AGAIN, types.COMPANY, classes.TOKENS)
    findings = [
        finding for group in groups for finding in checks_classes.same(classed, group, limits)
    ]
    checking(
        [*findings, *checks_classes.batches(classed, limits)],
        [each.case for each in classed.of(*groups, types.BATCH)],
        "The same input has another score or label in another request",
    )


def test_long_inputs_are_cut_as_asked(
    classed: ClassesWalk, limits: Limits, checking: Checking
) -> None:
    checking(
        [*checks_classes.cut(classed, limits)],
        [each.case for each in classed.of(types.LONG)],
        "An input that is cut has the score of another one",
    )


def test_documents_are_put_in_order(
    classed: ClassesWalk, limits: Limits, checking: Checking
) -> None:
    seen = classed.of(classes.RANKED)
    if not seen:
        raise NotApplicable("a model that classifies texts ranks no documents")
    checking(
        [*checks_classes.ranked(classed, limits)],
        [each.case for each in seen],
        "Documents are not in the order of their scores",
    )


def test_what_has_no_class_is_refused(classed: ClassesWalk, checking: Checking) -> None:
    checking(
        [*checks_classes.refusals(classed)],
        [each.case for each in classed.of(types.REFUSED)],
        "An input that cannot be classified is not refused correctly",
    )
