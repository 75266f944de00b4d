"""Vectors that are not those of their texts are found, and healthy ones are not."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.pooling import Pooling
from pytest_vllm_gates.pooling import checks, golden, plan, types
from pytest_vllm_gates.pooling.golden import TrustedVectors
from pytest_vllm_gates.pooling.types import RERANK, SCORE, Embedded, PoolingWalk, Scored, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 16
FACTS = Pooling(pooler="last")
PLAN = plan.shipped()
LIMITS = PLAN.limits


def vector(text: str) -> Vector:
    """Return a unit vector; a question's is near that of its document."""
    for pair in PLAN.pairs:
        if text == pair.question:
            near, far = vector(pair.document), vector(text + " ")
            mixed = [0.7 * one + 0.5 * other for one, other in zip(near, far, strict=True)]
            return _unit(mixed)
    digest = hashlib.sha256(text.encode()).digest()
    return _unit([byte - 127.5 for byte in digest[:WIDTH]])


def _scaled(numbers: Vector) -> Vector:
    return tuple(2 * number for number in numbers)


def _unit(numbers: list[float]) -> Vector:
    norm = math.sqrt(sum(number * number for number in numbers))
    return tuple(number / norm for number in numbers)


def embedded(group: str, name: str, *texts: str, tokens: int = 3) -> Embedded:
    """Return the right answer for some texts."""
    value = list(texts) if len(texts) > 1 else texts[0]
    return Embedded(name, group, {"input": value}, tuple(map(vector, texts)), tokens)


@pytest.fixture
def walk() -> PoolingWalk:
    """Everything that a healthy server answers."""
    texts = PLAN.named("TEXT")
    walk = PoolingWalk(texts, token_ids=dict.fromkeys(texts, (1, 2, 3)), context=2048)
    names, all_texts = list(texts), list(texts.values())
    for group in (types.ALONE, types.AGAIN, types.COMPANY):
        walk.embedded += [embedded(group, name, text) for name, text in texts.items()]
    walk.embedded += [
        embedded(types.BATCH, "in order", *all_texts),
        embedded(types.BATCH, "reversed", *all_texts[::-1]),
        embedded(types.COMPANY, "nonce 0", "a nonce"),
        embedded(types.NONCE, "nonce 0", "a nonce"),
        embedded(types.FORM, "base64", all_texts[0]),
        *(
            dataclasses.replace(
                embedded(types.LONG, name, text), request={"input": [1, 2, 3]}
            )
            for name, text in {
                "cut": "Paris", "its first tokens": "Paris", "its last tokens": "France.",
                "cut to the context": "river",
            }.items()
        ),
        *(
            Embedded(name, types.REFUSED, {}, status=statuses[0], error="no")
            for name, statuses in checks.REFUSALS.items()
        ),
        embedded(types.REFUSED, "afterwards", all_texts[0]),
    ]  # fmt: skip
    question, documents = PLAN.pairs[0].question, [pair.document for pair in PLAN.pairs]
    due = [1 - checks.distance(vector(question), vector(text)) for text in documents]
    ranked = sorted(enumerate(due), key=lambda row: -row[1])
    walk.scored += [
        Scored(SCORE, {"text_1": question}, tuple(enumerate(due))),
        Scored(RERANK, {"query": question, "top_n": 2}, tuple(ranked[:2])),
    ]
    assert names[0] == "question 1"
    return walk


def findings(walk: PoolingWalk) -> dict[str, list[str]]:
    """Return what each check finds."""
    computed = {name: _scaled(vector(text)) for name, text in walk.texts.items()}
    trusted = TrustedVectors("0" * 64, golden.FP32, computed)
    found = {
        "shapes": checks.shapes(walk, FACTS, WIDTH, LIMITS),
        "apart": checks.apart(walk, LIMITS),
        "again": checks.same_texts(walk, types.AGAIN, LIMITS),
        "company": checks.same_texts(walk, types.COMPANY, LIMITS),
        "batches": checks.batches(walk, LIMITS),
        "forms": checks.forms(walk, LIMITS),
        "long": checks.long_texts(walk, LIMITS),
        "refusals": checks.refusals(walk),
        "found": checks.found(walk),
        "scores": checks.scores(walk, LIMITS),
        "reference": checks.reference(walk, trusted, LIMITS),
    }
    told = {name: [finding.says for finding in each] for name, each in found.items()}
    return {name: sentences for name, sentences in told.items() if sentences}


def change(walk: PoolingWalk, group: str, name: str, **values: object) -> None:
    """Change one answer."""
    for place, each in enumerate(walk.embedded):
        if (each.group, each.name) == (group, name):
            walk.embedded[place] = dataclasses.replace(each, **values)  # type: ignore[arg-type]
            return
    raise AssertionError(name)


def test_a_healthy_server_has_no_findings(walk: PoolingWalk) -> None:
    assert findings(walk) == {}


OTHER = (vector("something else"),)
NAN = (tuple([math.nan] * WIDTH),)


@pytest.mark.parametrize(
    ("group", "name", "values", "check", "says"),
    [
        ("alone", "emoji", {"vectors": (vector("x") * 2,)}, "shapes", "2 times as many"),
        ("alone", "emoji", {"vectors": NAN}, "shapes", "not finite"),
        ("alone", "emoji", {"vectors": (tuple([0.0] * WIDTH),)}, "shapes", "is zero"),
        ("alone", "emoji", {"prompt_tokens": 9}, "shapes", "counts 9 tokens, and the text has 3"),
        ("alone", "emoji", {"wrong": ("id is null",)}, "shapes", "id is null"),
        ("again", "emoji", {"vectors": OTHER}, "again", "from its vector alone"),
        ("again", "emoji", {"vectors": (), "error": "no", "status": 500}, "again", "500 no"),
        ("company", "nonce 0", {"vectors": OTHER}, "company", "from its vector alone"),
        ("batch", "reversed", {"vectors": OTHER}, "batches", "texts got 1 vectors"),
        ("form", "base64", {"vectors": OTHER}, "forms", "from the text's vector"),
        ("long", "cut", {"vectors": OTHER}, "long", "neither that of its first"),
        ("long", "cut", {"prompt_tokens": 9}, "long", "9 tokens, and 3 were kept"),
        ("refused", "a chat", {"status": 200}, "refusals", "answered 200, not 400"),
        ("refused", "too long", {"status": 500}, "refusals", "answered 500, not 400"),
        ("refused", "afterwards", {"vectors": (), "status": 0}, "refusals", "no vector"),
    ],
)  # fmt: skip
def test_each_fault_is_reported(
    *, group: str, name: str, values: dict[str, object], check: str, says: str, walk: PoolingWalk
) -> None:
    change(walk, group, name, **values)
    found = findings(walk)
    assert any(says in sentence for sentence in found[check]), found


def test_texts_without_their_final_token_are_reported(walk: PoolingWalk) -> None:
    facts = Pooling(pooler="last", appended="<|endoftext|>")
    walk.appended = (3,)
    assert [*checks.shapes(walk, facts, WIDTH, LIMITS)] == []
    walk.token_ids["emoji"] = (1, 2, 4)
    (finding,) = checks.shapes(walk, facts, WIDTH, LIMITS)
    assert "end in 4, and not in 3 (<|endoftext|>)" in finding.says


def test_a_batch_in_another_order_names_the_vectors_text(walk: PoolingWalk) -> None:
    change(walk, "batch", "in order", vectors=tuple(map(vector, [*walk.texts.values()][::-1])))
    assert "and it is the vector of 'special'" in findings(walk)["batches"][0]


def test_vectors_all_turned_alike_are_found_only_by_the_reference(walk: PoolingWalk) -> None:
    def turned(numbers: Vector) -> Vector:
        return tuple(-numbers[i ^ 1] if i % 2 else numbers[i ^ 1] for i in range(WIDTH))

    walk.embedded[:] = [
        dataclasses.replace(each, vectors=tuple(map(turned, each.vectors)))
        for each in walk.embedded
    ]
    assert {*findings(walk)} == {"reference"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda rows: rows[::-1], "the best is not first"),
        (lambda rows: rows[:1], "expected 2 scores"),
        (lambda rows: (rows[0], rows[0]), "expected 2 scores"),
        (lambda rows: (rows[0], (99, 0.1)), "expected 2 scores"),
        (lambda rows: (rows[0], (rows[1][0], math.nan)), "and its vector gives"),
    ],
)
def test_orders_that_do_not_follow_are_reported(
    spoil: Callable[[tuple[tuple[int, float], ...]], tuple[tuple[int, float], ...]],
    says: str,
    walk: PoolingWalk,
) -> None:
    walk.scored[1] = dataclasses.replace(walk.scored[1], scores=spoil(walk.scored[1].scores))
    assert any(says in sentence for sentence in findings(walk)["scores"])


def test_a_question_nearer_to_another_document_is_reported(walk: PoolingWalk) -> None:
    change(walk, "alone", "question 1", vectors=(vector(PLAN.pairs[4].document),))
    assert findings(walk)["found"] == ["'document 5' is nearer to it than 'document 1'"]


def test_routes_that_are_not_there_are_no_finding(walk: PoolingWalk) -> None:
    walk.scored[:] = [
        dataclasses.replace(each, scores=(), status=404, error="Not Found") for each in walk.scored
    ]
    assert findings(walk) == {}


def test_vectors_that_cannot_be_compared_have_the_largest_distance() -> None:
    assert checks.distance((1.0, 0.0), (1.0,)) == 2.0
    assert checks.distance((0.0, 0.0), (1.0, 0.0)) == 2.0
    assert checks.distance((math.inf, 0.0), (1.0, 0.0)) == 2.0
    assert checks.distance((3.0, 0.0), (0.5, 0.0)) == 0.0
