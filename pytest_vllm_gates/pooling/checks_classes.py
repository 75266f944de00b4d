"""Faults of classes and scores, in one sentence each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_vllm_gates.client.untyped import shown
from pytest_vllm_gates.outcomes import Finding
from pytest_vllm_gates.pooling import types
from pytest_vllm_gates.pooling.checks import REFUSALS
from pytest_vllm_gates.pooling.classes import CLASSIFY, RANKED
from pytest_vllm_gates.pooling.types import SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_vllm_gates.pooling.classes import ClassesWalk, Classified
    from pytest_vllm_gates.pooling.golden import TrustedVectors
    from pytest_vllm_gates.pooling.plan import Limits

Row = tuple[float, ...]
SHOWN = 4
"""Decimals of a number that is shown."""


def apart(one: Row, other: Row) -> float:
    """Return the largest difference of two rows; infinite if they cannot be compared."""
    if len(one) != len(other):
        return math.inf
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=math.inf)


def answered(asked: Sequence[Classified]) -> Iterator[Finding]:
    """Yield inputs without the rows that they should have."""
    for each in asked:
        if not each.rows:
            yield Finding(each.case, f"nothing came: {each.status} {each.error}")


def forms(walk: ClassesWalk, labels: Sequence[str], limits: Limits) -> Iterator[Finding]:
    """Yield impossible probabilities, labels and counts; `labels` may be unknown."""
    yield from answered(walk.of(types.ALONE))
    for each in walk.of(types.ALONE):
        if not each.rows:
            continue
        if len(each.rows) != 1 or each.indices != (0,):
            yield Finding(each.case, f"expected one row, got the indices {list(each.indices)}")
        for row, label in zip(each.rows, each.labels, strict=False):
            yield from (Finding(each.case, says) for says in _row(each, row, label, labels, limits))
        due = len(walk.token_ids[each.name])
        if each.prompt_tokens != due:
            yield Finding(
                each.case, f"usage counts {each.prompt_tokens} tokens, and the input has {due}"
            )


def _row(
    each: Classified, row: Row, label: str | None, labels: Sequence[str], limits: Limits
) -> Iterator[str]:
    if not row or not all(math.isfinite(number) and 0 <= number <= 1 for number in row):
        yield f"some are not between 0 and 1: {_numbers(row)}"
        return
    if each.route != CLASSIFY:
        return
    if abs(sum(row) - 1) > limits.norm and len(row) > 1:
        yield f"the probabilities sum to {sum(row):.{SHOWN}f}, not 1: {_numbers(row)}"
    if labels and len(row) != len(labels):
        yield f"{len(row)} probabilities came, and the model has {len(labels)} labels"
    elif labels and label != (due := labels[row.index(max(row))]):
        yield f"the label is {shown(label)}, and {due!r} is the likeliest: {_numbers(row)}"


def differing(walk: ClassesWalk) -> Iterator[Finding]:
    """Yield that all inputs have one row, and pairs whose own document is not the better one."""
    alone = walk.alone()
    if len(alone) > 1 and len({*alone.values()}) == 1:
        first = walk.of(types.ALONE)[0]
        yield Finding(first.case, f"all inputs have the same row: {_numbers(first.rows[0])}")
    for each in walk.of(types.ALONE):
        other = walk.own.get(each.name)
        if other in alone and each.rows and each.rows[0] <= alone[other]:
            yield Finding(
                each.case,
                f"its score is {_numbers(each.rows[0])}, and that of {other!r}, which answers "
                f"another question, is {_numbers(alone[other])}",
            )


def same(walk: ClassesWalk, group: str, limits: Limits) -> Iterator[Finding]:
    """Yield the inputs of a group whose row differs from the row of the input alone."""
    yield from answered(walk.of(group))
    alone = walk.alone()
    for each in walk.of(group):
        if each.rows and each.name in alone:
            yield from _differs(each, each.rows[0], alone, each.name, limits)


def batches(walk: ClassesWalk, limits: Limits) -> Iterator[Finding]:
    """Yield the places of a batch that do not have the row of their input."""
    yield from answered(walk.of(types.BATCH))
    alone = walk.alone()
    for each in walk.of(types.BATCH):
        names = [*walk.inputs] if each.name == "in order" else [*walk.inputs][::-1]
        if each.rows and each.indices != tuple(range(len(names))):
            yield Finding(each.case, f"expected {len(names)} rows, got the indices "
                f"{shown(list(each.indices))}")  # fmt: skip
            continue
        for name, row in zip(names, each.rows, strict=False):
            if name in alone:
                yield from _differs(each, row, alone, name, limits)


def _differs(
    each: Classified, row: Row, alone: Mapping[str, Row], name: str, limits: Limits
) -> Iterator[Finding]:
    if apart(row, alone[name]) > limits.score:
        yield Finding(
            each.case,
            f"{name!r} has {_numbers(row)}, and alone {_numbers(alone[name])}; expected at most "
            f"{limits.score:g} apart",
        )


def cut(walk: ClassesWalk, limits: Limits) -> Iterator[Finding]:
    """Yield that a cut input has the row of none of its parts, or a wrong token count."""
    yield from answered(walk.of(types.LONG))
    told, *parts = walk.of(types.LONG)
    if not told.rows:
        return
    due = len(parts[0].request["input"])
    if told.prompt_tokens != due:
        yield Finding(told.case, f"{due} tokens are expected after the cut, and usage counts "
            f"{told.prompt_tokens}")  # fmt: skip
    if not any(part.rows and apart(told.rows[0], part.rows[0]) <= limits.score for part in parts):
        yield Finding(
            told.case,
            f"cut, it has {_numbers(told.rows[0])}: neither that of its first tokens nor that of "
            "its last",
        )


def ranked(walk: ClassesWalk, limits: Limits) -> Iterator[Finding]:
    """Yield orders of `/rerank` that do not follow from the scores of `/score`."""
    yield from answered(walk.of(RANKED))
    scores: dict[str, list[float]] = {}
    for each in walk.of(RANKED):
        if each.route == SCORE:
            scores[each.name] = [row[0] for row in each.rows]
        elif each.rows and scores.get(each.name):
            faults = _order(each, scores[each.name], limits)
            yield from (Finding(each.case, sentence) for sentence in faults)


def _order(each: Classified, due: Sequence[float], limits: Limits) -> Iterator[str]:
    wanted, indices = int(each.request["top_n"]), list(each.indices)
    if len(indices) != wanted or len({*indices}) != wanted or max(indices) >= len(due):
        yield f"expected {wanted} documents, got the indices {shown(indices)}"
        return
    told = [row[0] for row in each.rows]
    for index, score in zip(indices, told, strict=True):
        if not abs(score - due[index]) <= limits.score:
            yield f"document {index + 1} has {score:.{SHOWN}f}, and /score gives {due[index]:.4f}"
    if told != sorted(told, reverse=True):
        yield f"the best is not first: {indices}"
    left_out = [due[index] for index in {*range(len(due))} - {*indices}]
    if left_out and max(left_out) > min(told) + limits.score:
        yield "a better document was left out than one that came"


def reference(walk: ClassesWalk, trusted: TrustedVectors, limits: Limits) -> Iterator[Finding]:
    """Yield inputs whose row differs from the trusted one."""
    for each in walk.of(types.ALONE):
        due = trusted.vectors.get(each.name)
        if each.rows and due is not None and apart(each.rows[0], due) > limits.score:
            yield Finding(
                each.case,
                f"it has {_numbers(each.rows[0])}, and {trusted.source} gives {_numbers(due)}",
            )


def refusals(walk: ClassesWalk) -> Iterator[Finding]:
    """Yield bad requests that are not refused, or with another status than expected."""
    *refused, afterwards = walk.of(types.REFUSED)
    for each in refused:
        if each.status not in (due := REFUSALS[each.name]):
            told = each.error or f"{len(each.rows)} rows"
            yield Finding(each.case, f"it is answered {each.status}, not {due[0]}: {told}")
    yield from answered([afterwards])


def _numbers(row: Sequence[float]) -> str:
    return ", ".join(f"{number:.{SHOWN}f}" for number in row)
