"""Faults of vectors and scores, in one sentence each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_vllm_gates.outcomes import Finding
from pytest_vllm_gates.pooling import types
from pytest_vllm_gates.pooling.types import RERANK, SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.pooling import Pooling
    from pytest_vllm_gates.pooling.golden import TrustedVectors
    from pytest_vllm_gates.pooling.plan import Limits
    from pytest_vllm_gates.pooling.types import Embedded, PoolingWalk, Scored, Vector

NOT_THERE = 404
REFUSALS = {
    "too long": (400,),
    "an empty list": (400, 422),
    "a number": (400, 422),
    "another model": (404,),
    "more dimensions than it has": (400,),
    "a chat": (400, 404, 405, 501),
}
"""The expected statuses of each bad request."""


def distance(one: Vector, other: Vector) -> float:
    """Return 1 - cosine of two vectors: 0 for one direction; 2 where they cannot be compared."""
    if len(one) != len(other):
        return 2.0
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    if not math.isfinite(length) or length == 0:
        return 2.0
    return max(0.0, 1.0 - float(first @ second) / length)


def answered(embedded: Sequence[Embedded]) -> Iterator[Finding]:
    """Yield texts without the vectors that they should have."""
    for each in embedded:
        if not each.vectors:
            yield Finding(each.case, f"no vector came: {each.status} {each.error}")


def same_texts(walk: PoolingWalk, group: str, limits: Limits) -> Iterator[Finding]:
    """Yield the texts of a group whose vector differs from the vector of the text alone."""
    alone = {**walk.alone(), **_first(walk.of(types.NONCE))}
    yield from answered(walk.of(group))
    for each in walk.of(group):
        if each.vectors and each.name in alone:
            yield from _differs(each, each.vectors[0], alone, each.name, limits)


def batches(walk: PoolingWalk, limits: Limits) -> Iterator[Finding]:
    """Yield the places of a batch that do not have the vector of their text."""
    alone = walk.alone()
    yield from answered(walk.of(types.BATCH))
    for each in walk.of(types.BATCH):
        names = list(walk.texts) if each.name == "in order" else [*walk.texts][::-1]
        if each.vectors and len(each.vectors) != len(names):
            yield Finding(each.case, f"{len(names)} texts got {len(each.vectors)} vectors")
            continue
        for name, vector in zip(names, each.vectors, strict=False):
            if name in alone:
                yield from _differs(each, vector, alone, name, limits)


def _differs(
    each: Embedded, vector: Vector, alone: Mapping[str, Vector], name: str, limits: Limits
) -> Iterator[Finding]:
    """Yield that a vector is not its text's, and whose it is instead."""
    apart = distance(vector, alone[name])
    if apart <= limits.same:
        return
    near = min(alone, key=lambda other: distance(vector, alone[other]))
    whose = (
        f", and it is the vector of {near!r}"
        if near != name and (distance(vector, alone[near]) <= limits.same)
        else ""
    )
    yield Finding(
        each.case,
        f"the vector of {name!r} is {apart:.4f} (1 - cosine) from its vector alone, expected at "
        f"most {limits.same:g}{whose}",
    )


def shapes(
    walk: PoolingWalk, facts: Pooling, width: int | None, limits: Limits
) -> Iterator[Finding]:
    """Yield vectors of the wrong size, with infinite numbers, or not of norm 1.

    `width` is the model's `hidden_size`, None if it is not known.
    """
    for each in walk.of(types.ALONE):
        yield from (Finding(each.case, sentence) for sentence in each.wrong)
        for vector in each.vectors:
            yield from _shape(each, vector, facts, width, limits)
        ids = walk.token_ids.get(each.name, ())
        due = len(ids)
        if ids and walk.appended and ids[-1:] != walk.appended:
            yield Finding(
                each.case,
                f"its tokens end in {ids[-1]}, and not in {walk.appended[-1]} ({facts.appended}), "
                "from which the vector is to be taken: look at the tokenizer's post-processor",
            )
        if each.vectors and due and each.prompt_tokens != due:
            yield Finding(
                each.case, f"usage counts {each.prompt_tokens} tokens, and the text has {due}"
            )


def _shape(
    each: Embedded, vector: Vector, facts: Pooling, width: int | None, limits: Limits
) -> Iterator[Finding]:
    if width and len(vector) != width:
        tokens = f", {len(vector) // width} times as many" if len(vector) % width == 0 else ""
        yield Finding(each.case, f"the vector has {len(vector)} numbers, not {width}{tokens}")
    if not all(map(math.isfinite, vector)):
        yield Finding(each.case, "the vector has numbers that are not finite")
        return
    norm = math.sqrt(sum(number * number for number in vector))
    if norm == 0:
        yield Finding(each.case, "the vector is zero")
    elif facts.normalised and abs(norm - 1) > limits.norm:
        yield Finding(
            each.case,
            f"the vector has the length {norm:.4f}, and this model's have 1: scores by inner "
            "product are wrong",
        )


def apart(walk: PoolingWalk, limits: Limits) -> Iterator[Finding]:
    """Yield texts that share a vector with another text."""
    alone = walk.alone()
    for each in walk.of(types.ALONE):
        for name, vector in alone.items():
            if each.name < name and each.vectors:
                between = distance(each.vectors[0], vector)
                if between < limits.apart:
                    yield Finding(
                        each.case,
                        f"its vector is {between:.4f} (1 - cosine) from the vector of {name!r}: "
                        "they hardly differ",
                    )


def forms(walk: PoolingWalk, limits: Limits) -> Iterator[Finding]:
    """Yield forms of the same request whose vectors differ."""
    first = next(iter(walk.alone().values()), None)
    yield from answered(walk.of(types.FORM))
    for each in walk.of(types.FORM):
        yield from (Finding(each.case, sentence) for sentence in each.wrong)
        for vector in each.vectors if first else ():
            between = distance(vector, first or ())
            if between > limits.same:
                yield Finding(
                    each.case, f"the vector is {between:.4f} (1 - cosine) from the text's vector"
                )


def long_texts(walk: PoolingWalk, limits: Limits) -> Iterator[Finding]:
    """Yield a cut that failed: the vector is that of neither end's tokens."""
    yield from answered(walk.of(types.LONG))
    by_name = {each.name: each for each in walk.of(types.LONG)}
    cut = by_name["cut"]
    ends = [by_name["its first tokens"], by_name["its last tokens"]]
    if cut.vectors and all(end.vectors for end in ends):
        between = min(distance(cut.vectors[0], end.vectors[0]) for end in ends)
        if between > limits.same:
            yield Finding(
                cut.case,
                "the vector is neither that of its first tokens nor that of its last "
                f"({between:.4f})",
            )
        due = len(ends[0].request["input"])
        if cut.prompt_tokens != due:
            yield Finding(cut.case, f"usage counts {cut.prompt_tokens} tokens, and {due} were kept")


def refusals(walk: PoolingWalk) -> Iterator[Finding]:
    """Yield bad requests that were not refused with the expected status."""
    for each in walk.of(types.REFUSED):
        due = REFUSALS.get(each.name)
        if due is None:
            yield from answered([each])
        elif each.status not in due:
            told = each.error or f"{len(each.vectors)} vectors"
            yield Finding(each.case, f"it is answered {each.status}, not {due[0]}: {told}")


def found(walk: PoolingWalk) -> Iterator[Finding]:
    """Yield questions to which another document is nearer than their own."""
    alone = walk.alone()
    documents = {name: vector for name, vector in alone.items() if name.startswith("document ")}
    for each in walk.of(types.ALONE):
        if not each.name.startswith("question ") or not each.vectors or not documents:
            continue
        own = each.name.replace("question", "document")
        away = {name: distance(each.vectors[0], vector) for name, vector in documents.items()}
        nearest = min(away, key=away.__getitem__)
        if nearest != own:
            yield Finding(each.case, f"{nearest!r} is nearer to it than {own!r}")


def offered(walk: PoolingWalk) -> list[Scored]:
    """Return the scores of routes that the server has."""
    return [each for each in walk.scored if each.status != NOT_THERE]


def scores(walk: PoolingWalk, limits: Limits) -> Iterator[Finding]:
    """Yield scores and orders that do not follow from the vectors."""
    alone = walk.alone()
    documents = [vector for name, vector in alone.items() if name.startswith("document ")]
    by_text = {walk.texts[name]: vector for name, vector in alone.items()}
    for each in offered(walk):
        if not each.scores:
            yield Finding(each.case, f"no scores came: {each.status} {each.error}")
            continue
        question = by_text.get(each.request.get("text_1") or each.request.get("query") or "")
        if question is None:
            continue
        due = [1 - distance(question, document) for document in documents]
        yield from _scores(each, due, limits)


def _scores(each: Scored, due: list[float], limits: Limits) -> Iterator[Finding]:
    wanted = int(each.request.get("top_n") or len(due))
    indices = [index for index, _ in each.scores]
    if len(indices) != wanted or len({*indices}) != wanted or max(indices) >= len(due):
        yield Finding(each.case, f"expected {wanted} scores, got the indices {indices}")
        return
    for index, score in each.scores:
        if not abs(score - due[index]) <= limits.apart:
            yield Finding(
                each.case,
                f"document {index + 1} has {score:.4f}, and its vector gives {due[index]:.4f}",
            )
    if each.route == SCORE and indices != list(range(wanted)):
        yield Finding(each.case, f"the scores are not in the order of the documents: {indices}")
    if each.route == RERANK:
        ordered = [score for _, score in each.scores]
        if ordered != sorted(ordered, reverse=True):
            yield Finding(each.case, f"the best is not first: {indices}")
        left_out = [due[index] for index in set(range(len(due))) - {*indices}]
        if left_out and max(left_out) > min(ordered) + limits.apart:
            yield Finding(each.case, "a better document was left out than one that came")


def reference(walk: PoolingWalk, trusted: TrustedVectors, limits: Limits) -> Iterator[Finding]:
    """Yield texts whose vector differs from the trusted one."""
    for each in walk.of(types.ALONE):
        if each.vectors and each.name in trusted.vectors:
            between = distance(each.vectors[0], trusted.vectors[each.name])
            if between > limits.same:
                yield Finding(
                    each.case,
                    f"the vector is {between:.4f} (1 - cosine) from the vector of "
                    f"{trusted.source}, expected at most {limits.same:g}",
                )


def _first(embedded: Sequence[Embedded]) -> dict[str, Vector]:
    return {each.name: each.vectors[0] for each in embedded if each.vectors}
