"""Which of the signatures that a log shows is the root of its failure.

1. A failure before a wrapper, which only reports that something else failed. What a client did
   wrong explains no death: it counts where no other failure is there.
2. The last boot that failed, where a log has several.
3. The earliest error block: lines a few apart, or exceptions of which one led to the other. What
   is said in later ones followed from it.
4. Within the block the most specific: conditions that had to hold, then captures that it filled.
   Of equals the earlier line, and on one line the pattern that says more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.diagnosis.marks import NO_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.diagnosis.matcher import Error, Matcher, SignatureMatch

APART = 12
CHAINED_APART = 150
CAPTURES_COUNTED = 2


def failures(seen: Iterable[SignatureMatch]) -> list[SignatureMatch]:
    """Return what may be the root, the root first."""
    found = [one for one in seen if one.signature.kind == "failure"]
    return [one for one in found if one.signature.phase != "client"] or found


def ranked(matcher: Matcher, found: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return these in the order in which they may be the root; one entry an id."""
    if not found:
        return []
    last = max(one.boot for one in found)
    inside = [one for one in found if one.boot == last]
    block = first_block(matcher, inside)
    best = sorted(block, key=lambda one: _order(matcher, one), reverse=True)
    later = sorted((one for one in inside if one not in block), key=lambda one: one.first.number)
    earlier = sorted((one for one in found if one.boot < last), key=lambda one: -one.first.number)
    by_id = {one.signature.id: one for one in reversed([*best, *later, *earlier])}
    return list(reversed(by_id.values()))


def first_block(matcher: Matcher, found: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return those of the earliest error block."""
    ordered = sorted(found, key=lambda one: one.first.number)
    block = ordered[:1]
    for one in ordered[1:]:
        if not together(matcher, block[-1].first.number, one.first.number):
            break
        block.append(one)
    return block


def together(matcher: Matcher, first: int, second: int) -> bool:
    """Return whether two lines are of one error block."""
    low, high = sorted((first, second))
    if high - low <= APART:
        return True
    return high - low <= CHAINED_APART and any(low < one < high for one in matcher.chains)


def unexplained(matcher: Matcher) -> Error | None:
    """Return the earliest error that is of no block which a signature explains.

    A wrapper explains its own line alone: the traceback below it may be of the root.
    """
    known = {number for one in matcher.seen.values() for number in one.numbers}
    others = [one.first.number for one in matcher.seen.values() if one.signature.kind != "wrapper"]
    for error in matcher.errors:
        if NO_ERROR.search(error.text) or error.number in known:
            continue
        if any(together(matcher, error.number, number) for number in others):
            continue
        return error
    return None


def specificity(one: SignatureMatch) -> int:
    """Return how much had to hold for a signature to be seen."""
    return 2 * one.signature.when.conditions + min(len(one.captures), CAPTURES_COUNTED)


def _order(matcher: Matcher, one: SignatureMatch) -> tuple[int, int, int]:
    pattern = matcher.table.sieve.patterns[one.first.pattern].pattern
    return specificity(one), -one.first.number, len(pattern)
