"""Scores and labels that are not those of their inputs are found, and healthy ones are not."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.pooling import checks_classes, plan, types
from pytest_vllm_gates.pooling.classes import (
    CLASSIFY,
    RANKED,
    TOKENS,
    ClassesWalk,
    Classified,
)
from pytest_vllm_gates.pooling.golden import TrustedVectors
from pytest_vllm_gates.pooling.types import RERANK, SCORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_vllm_gates.outcomes import Finding

PLAN = plan.shipped()
LIMITS = PLAN.limits
LABELS = ("question", "document", "other")
IDS = (1, 2, 3)
CHECKS: dict[str, Callable[[ClassesWalk], Iterator[Finding]]] = {
    "forms": lambda walk: checks_classes.forms(walk, LABELS, LIMITS),
    "differing": checks_classes.differing,
    "again": lambda walk: checks_classes.same(walk, types.AGAIN, LIMITS),
    "company": lambda walk: checks_classes.same(walk, types.COMPANY, LIMITS),
    "tokens": lambda walk: checks_classes.same(walk, TOKENS, LIMITS),
    "batches": lambda walk: checks_classes.batches(walk, LIMITS),
    "cut": lambda walk: checks_classes.cut(walk, LIMITS),
    "ranked": lambda walk: checks_classes.ranked(walk, LIMITS),
    "refusals": checks_classes.refusals,
    "reference": lambda walk: checks_classes.reference(
        walk, TrustedVectors("w", "transformers in fp32", walk.alone()), LIMITS
    ),
}


def row(name: str, own: bool) -> tuple[float, ...]:
    """Return an input's row: one high score for what belongs together, or three probabilities."""
    wobble = hashlib.sha256(name.encode()).digest()[0] / 2000
    return (0.8 + wobble if own else 0.1 + wobble,)


def made(scores: bool) -> ClassesWalk:
    """Return everything that a healthy server answers."""
    inputs, own = PLAN.scored() if scores else (PLAN.classified(), {})
    walk = ClassesWalk(inputs, own, token_ids=dict.fromkeys(inputs, IDS))
    rows = {name: row(name, name in own) if scores else probabilities(name) for name in inputs}
    route = SCORE if scores else CLASSIFY

    def told(group: str, name: str, *names: str) -> Classified:
        found = tuple(rows[each] for each in names)
        labels = tuple(None if scores else LABELS[each.index(max(each))] for each in found)
        indices = tuple(range(len(names)))
        return Classified(name, group, route, {"input": "text"}, found, labels, indices, len(IDS))

    for group in (types.ALONE, types.AGAIN, types.COMPANY, TOKENS):
        walk.asked += [told(group, name, name) for name in inputs]
    walk.asked.append(told(types.BATCH, "in order", *inputs))
    walk.asked.append(told(types.BATCH, "reversed", *[*inputs][::-1]))
    first = next(iter(inputs))
    cut = told(types.LONG, "cut", first)
    parts = [
        dataclasses.replace(cut, name=name, request={"input": list(IDS)})
        for name in ("a", "b", "c")
    ]
    walk.asked += [cut, *parts]
    for name, status in (("too long", 400), ("an empty list", 400), ("another model", 404)):
        walk.asked.append(Classified(name, types.REFUSED, route, {}, status=status, error="no"))
    walk.asked.append(Classified("a chat", types.REFUSED, route, {}, status=404, error="no"))
    walk.asked.append(told(types.REFUSED, "afterwards", first))
    if scores:
        walk.asked += rankings()
    return walk


def probabilities(name: str) -> tuple[float, ...]:
    """Return three probabilities, of which the first is the largest for a question."""
    rest = hashlib.sha256(name.encode()).digest()[0] / 2000
    return (0.8 - rest, 0.1, 0.1 + rest)


def rankings() -> list[Classified]:
    """Return the answers of `/score` and `/rerank` to one question."""
    scored = [0.9, 0.1, 0.4, 0.2]
    order = sorted(range(4), key=scored.__getitem__, reverse=True)
    ranked = Classified(
        "question 1", RANKED, RERANK, {"top_n": 4}, tuple((scored[n],) for n in order),
        indices=tuple(order),
    )  # fmt: skip
    best = dataclasses.replace(
        ranked, request={"top_n": 2}, rows=ranked.rows[:2], indices=ranked.indices[:2]
    )
    rows = tuple((score,) for score in scored)
    return [Classified("question 1", RANKED, SCORE, {}, rows), ranked, best]


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_server_has_no_findings(check: str, scores: bool) -> None:
    assert [finding.says for finding in CHECKS[check](made(scores))] == []


def changed(walk: ClassesWalk, group: str, name: str | None = None, **fields: object) -> None:
    """Change the answers of a group, or the one of that name."""
    walk.asked = [
        dataclasses.replace(each, **fields)  # type: ignore[arg-type]
        if each.group == group and name in {None, each.name}
        else each
        for each in walk.asked
    ]


BROKEN: dict[str, tuple[bool, str, str, Callable[[ClassesWalk], None]]] = {
    "above one": (
        True, "forms", "some are not between 0 and 1: 1.5000",
        lambda walk: changed(walk, types.ALONE, rows=((1.5,),)),
    ),
    "not finite": (
        True, "forms", "some are not between 0 and 1: nan",
        lambda walk: changed(walk, types.ALONE, rows=((float("nan"),),)),
    ),
    "sum": (
        False, "forms", "the probabilities sum to 1.2000, not 1",
        lambda walk: changed(walk, types.ALONE, rows=((0.8, 0.2, 0.2),)),
    ),
    "label": (
        False, "forms", "the label is 'other', and 'question' is the likeliest",
        lambda walk: changed(walk, types.ALONE, labels=("other",)),
    ),
    "fewer labels": (
        False, "forms", "2 probabilities came, and the model has 3 labels",
        lambda walk: changed(walk, types.ALONE, rows=((0.5, 0.5),)),
    ),
    "usage": (
        False, "forms", "usage counts 9 tokens, and the input has 3",
        lambda walk: changed(walk, types.ALONE, prompt_tokens=9),
    ),
    "nothing": (
        False, "forms", "nothing came: 500 broken",
        lambda walk: changed(walk, types.ALONE, rows=(), status=500, error="broken"),
    ),
    "all alike": (
        False, "differing", "all inputs have the same row: 0.3000",
        lambda walk: changed(walk, types.ALONE, rows=((0.3,),)),
    ),
    "another document": (
        True, "differing", "which answers another question",
        lambda walk: changed(
            walk, types.ALONE, "question 1 and document 1", rows=((0.05,),)
        ),
    ),
    "another row": (
        True, "again", "expected at most 0.02 apart",
        lambda walk: changed(walk, types.AGAIN, rows=((0.5,),)),
    ),
    "in company": (
        False, "company", "and alone 0.",
        lambda walk: changed(walk, types.COMPANY, rows=((0.1, 0.8, 0.1),)),
    ),
    "indices": (
        True, "batches", "rows, got the indices [0]",
        lambda walk: changed(walk, types.BATCH, indices=(0,)),
    ),
    "order": (
        True, "batches", "expected at most 0.02 apart",
        lambda walk: changed(
            walk, types.BATCH, "reversed", rows=walk.of(types.BATCH)[0].rows
        ),
    ),
    "not cut": (
        True, "cut", "neither that of its first tokens nor that of its last",
        lambda walk: changed(walk, types.LONG, "cut", rows=((0.5,),)),
    ),
    "counts of a cut": (
        True, "cut", "3 tokens are expected after the cut, and usage counts 30",
        lambda walk: changed(walk, types.LONG, "cut", prompt_tokens=30),
    ),
    "one twice": (
        True, "ranked", "expected 4 documents, got the indices [0, 0, 2, 3]",
        lambda walk: changed(walk, RANKED, indices=(0, 0, 2, 3)),
    ),
    "answered": (
        True, "refusals", "it is answered 200, not 404",
        lambda walk: changed(walk, types.REFUSED, "another model", status=200),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_is_found(name: str) -> None:
    scores, check, says, breaks = BROKEN[name]
    walk = made(scores)
    breaks(walk)
    found = [finding.says for finding in CHECKS[check](walk)]
    assert any(says in sentence for sentence in found), found


def ranking(walk: ClassesWalk, change: Callable[[Classified], Classified]) -> list[str]:
    """Return the findings on the rankings after a change of the first of them."""
    at = next(n for n, each in enumerate(walk.asked) if each.route == RERANK)
    walk.asked[at] = change(walk.asked[at])
    return [finding.says for finding in checks_classes.ranked(walk, LIMITS)]


def test_rankings_follow_from_scores() -> None:
    reverse = ranking(
        made(scores=True),
        lambda each: dataclasses.replace(each, rows=each.rows[::-1], indices=each.indices[::-1]),
    )
    assert reverse == ["the best is not first: [1, 3, 2, 0]"]
    other = ranking(
        made(scores=True), lambda each: dataclasses.replace(each, rows=((0.95,), *each.rows[1:]))
    )
    assert other == ["document 1 has 0.9500, and /score gives 0.9000"]
    worse = ranking(
        made(scores=True),
        lambda each: dataclasses.replace(
            each, request={"top_n": 2}, indices=(2, 3), rows=((0.4,), (0.2,))
        ),
    )
    assert worse == ["a better document was left out than one that came"]


def test_trusted_rows_are_compared() -> None:
    walk = made(scores=True)
    name = next(iter(walk.inputs))
    trusted = TrustedVectors("w", "transformers in fp32", {name: (0.2,)})
    (finding,) = checks_classes.reference(walk, trusted, LIMITS)
    assert finding.says.endswith("and transformers in fp32 gives 0.2000")
