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
    matches = [match for match in seen if match.signature.kind == "failure"]
    return [match for match in matches if match.signature.phase != "client"] or matches


def ranked(matcher: Matcher, found: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return these in the order in which they may be the root; one entry an id."""
    if not found:
        return []
    last = max(match.boot for match in found)
    inside = [match for match in found if match.boot == last]
    block = first_block(matcher, inside)
    best = sorted(block, key=lambda match: _order(matcher, match), reverse=True)
    later = sorted(
        (match for match in inside if match not in block), key=lambda match: match.first.number
    )
    earlier = sorted(
        (match for match in found if match.boot < last), key=lambda match: -match.first.number
    )
    by_id = {match.signature.id: match for match in reversed([*best, *later, *earlier])}
    return list(reversed(by_id.values()))


def first_block(matcher: Matcher, found: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return those of the earliest error block."""
    ordered = sorted(found, key=lambda signature_match: signature_match.first.number)
    block = ordered[:1]
    for match in ordered[1:]:
        if not together(matcher, block[-1].first.number, match.first.number):
            break
        block.append(match)
    return block


def together(matcher: Matcher, first: int, second: int) -> bool:
    """Return whether two lines are of one error block."""
    low, high = sorted((first, second))
    if high - low <= APART:
        return True
    return high - low <= CHAINED_APART and any(low < chain < high for chain in matcher.chains)


def unexplained(matcher: Matcher) -> Error | None:
    """Return the earliest error that is of no block which a signature explains.

    A wrapper explains its own line alone: the traceback below it may be of the root.
    """
    known = {number for match in matcher.seen.values() for number in match.numbers}
    others = [
        match.first.number for match in matcher.seen.values() if match.signature.kind != "wrapper"
    ]
    for error in matcher.errors:
        if NO_ERROR.search(error.text) or error.number in known:
            continue
        if any(together(matcher, error.number, number) for number in others):
            continue
        return error
    return None


def specificity(match: SignatureMatch) -> int:
    """Return how much had to hold for a signature to be seen."""
    return 2 * match.signature.when.conditions + min(len(match.captures), CAPTURES_COUNTED)


def _order(matcher: Matcher, match: SignatureMatch) -> tuple[int, int, int]:
    pattern = matcher.table.sieve.patterns[match.first.pattern].pattern
    return specificity(match), -match.first.number, len(pattern)
