"""Chooses the root of a failure from the signatures that a log shows.

1. A failure before a wrapper, which only reports that something else failed. A client's mistake
   does not explain a dead server: it counts only without another failure.
2. The last boot that failed, if a log has several. Errors before a boot became ready did not keep
   it from serving, and do not count as its failure.
3. Errors before warnings, except for the few causes that are only ever printed as warnings.
4. The earliest error block: lines a few apart, or chained exceptions. Later blocks follow from it.
5. Within the block the most specific: conditions that were met, then captures that were filled.
   Among equals the earlier line, and on one line the longer pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.diagnosis.marks import GAVE_UP, NO_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.diagnosis.matcher import Error, Matcher, SignatureMatch

APART = 12
CHAINED_APART = 150
CAPTURES_COUNTED = 2


def failures(matcher: Matcher, signature_matches: Iterable[SignatureMatch]) -> list[SignatureMatch]:
    """Return possible roots: failures, except those after which their boot became ready."""
    matches = [
        match
        for match in signature_matches
        if match.signature.kind == "failure" and not before_ready(matcher, match)
    ]
    return [match for match in matches if match.signature.phase != "client"] or matches


def before_ready(matcher: Matcher, match: SignatureMatch) -> bool:
    """Return whether a boot became ready after the last line of a match."""
    ready = matcher.course.of(match.boot).ready
    return ready is not None and match.last < ready


def yields(match: SignatureMatch) -> bool:
    """Return whether a match is only a warning, which a real exception outranks."""
    return not match.loud and not match.signature.warned


def ranked(matcher: Matcher, matches: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return the matches, the likeliest root first; one entry per id."""
    if not matches:
        return []
    last = max(match.boot for match in matches)
    in_last_boot = [match for match in matches if match.boot == last]
    loud = [match for match in in_last_boot if not yields(match)] or in_last_boot
    block = first_block(matcher, loud)
    best = sorted(block, key=lambda match: _order(matcher, match), reverse=True)
    later = sorted(
        (match for match in in_last_boot if match not in block),
        key=lambda match: match.first.number,
    )
    earlier = sorted(
        (match for match in matches if match.boot < last), key=lambda match: -match.first.number
    )
    by_id: dict[str, SignatureMatch] = {}
    for match in (*best, *later, *earlier):
        by_id.setdefault(match.signature.id, match)
    return list(by_id.values())


def first_block(matcher: Matcher, matches: Sequence[SignatureMatch]) -> list[SignatureMatch]:
    """Return the matches in the earliest error block."""
    ordered = sorted(matches, key=lambda signature_match: signature_match.first.number)
    block = ordered[:1]
    for match in ordered[1:]:
        if not together(matcher, block[-1].first.number, match.first.number):
            break
        block.append(match)
    return block


def together(matcher: Matcher, line: int, other_line: int) -> bool:
    """Return whether two lines are in one error block."""
    low, high = sorted((line, other_line))
    if high - low <= APART:
        return True
    return high - low <= CHAINED_APART and any(low < chain < high for chain in matcher.chains)


def unexplained(matcher: Matcher) -> list[Error]:
    """Return the errors outside every block that a signature explains, the earliest first.

    A wrapper explains only its own line: the traceback below it may be the root's. A task that is
    cancelled while the server serves, as when a client disconnects, is not a server error, unless a
    wrapper reports that the server went down.
    """
    known_lines = {number for match in matcher.seen.values() for number in match.numbers}
    explaining = [
        match
        for match in matcher.seen.values()
        if match.signature.kind != "wrapper" and not yields(match)
    ]
    return [
        error
        for error in matcher.errors
        if not NO_ERROR.search(error.text)
        and not _called_off(matcher, error)
        and error.number not in known_lines
        and not any(
            match.boot == error.boot and together(matcher, error.number, match.first.number)
            for match in explaining
        )
    ]


def _called_off(matcher: Matcher, error: Error) -> bool:
    ready = matcher.course.of(error.boot).ready
    if ready is None or error.number < ready or not GAVE_UP.match(error.text):
        return False
    return not any(
        match.boot == error.boot and match.signature.kind == "wrapper"
        for match in matcher.seen.values()
    )


def specificity(match: SignatureMatch) -> int:
    """Return how many conditions and captures a match needed."""
    return 2 * match.signature.when.conditions + min(len(match.captures), CAPTURES_COUNTED)


def _order(matcher: Matcher, match: SignatureMatch) -> tuple[int, int, int]:
    pattern = matcher.table.sieve.patterns[match.first.pattern].pattern
    return specificity(match), -match.first.number, len(pattern)
