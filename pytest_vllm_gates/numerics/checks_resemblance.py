"""Names the part of a server whose typical errors a difference between two runs resembles."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from pytest_vllm_gates.numerics.checks_paired import (
    FLOOR,
    Comparison,
    Equivalence,
    ForcedPhase,
    paired,
)
from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

Pairs = Sequence[tuple[ForcedText, ForcedText]]

FAR_TOKENS = 32
GROWS = 1.5
RARE_NATS, RARE_TIMES = -6.0, 4.0
NOTHING_KNOWN = "it resembles nothing known"


def resemblance(trusted: ForcedRun, now: ForcedRun, comparisons: Sequence[Comparison]) -> str:
    """Return what a difference resembles, or "it resembles nothing known"."""
    by_phase = {comparison.phase: comparison.answer for comparison in comparisons}
    if by_phase[ForcedPhase.ALONE] is not Equivalence.DIFFERENT:
        if by_phase[ForcedPhase.TOGETHER] is Equivalence.DIFFERENT:
            return "only in a batch: a kernel for several sequences"
        return "only while answering: the kernel of decoding"
    return next(
        (words for looks, words in LOOKS if looks(paired(trusted, now))),
        NOTHING_KNOWN,
    )


def _apart(pair: tuple[ForcedText, ForcedText]) -> list[float]:
    return [abs(one - other) for one, other in zip(pair[0].alone, pair[1].alone, strict=True)]


def _from_a_position_on(pairs: Pairs) -> bool:
    firsts = [
        next((at for at, far in enumerate(_apart(pair)) if far > FLOOR), None) for pair in pairs
    ]
    begun = [first for first in firsts if first is not None]
    return bool(begun) and min(begun) >= FAR_TOKENS


def _on_rare_tokens(pairs: Pairs) -> bool:
    rare: list[float] = []
    others: list[float] = []
    for pair in pairs:
        for far, logprob in zip(_apart(pair), pair[0].alone, strict=True):
            (rare if logprob < RARE_NATS else others).append(far)
    return bool(rare and others) and statistics.fmean(rare) > RARE_TIMES * (
        statistics.fmean(others) + FLOOR
    )


def _growing(pairs: Pairs) -> bool:
    """Whether the first token of every text is the same, and late ones are farther apart."""
    early, late, first = [], [], []
    for pair in pairs:
        apart = _apart(pair)
        quarter = max(1, len(apart) // 4)
        first.append(apart[0])
        early.append(statistics.fmean(apart[:quarter]))
        late.append(statistics.fmean(apart[-quarter:]))
    return max(first) <= FLOOR and statistics.fmean(late) > statistics.fmean(early)


def _alike(pairs: Pairs) -> bool:
    halves = [0.0, 0.0]
    for pair in pairs:
        apart = _apart(pair)
        middle = len(apart) // 2
        halves[0] += statistics.fmean(apart[:middle])
        halves[1] += statistics.fmean(apart[middle:])
    return max(halves) <= GROWS * min(halves)


LOOKS: tuple[tuple[Callable[[Pairs], bool], str], ...] = (
    (
        _from_a_position_on,
        "from a position on: a window, the border of a chunk, or scaled positions",
    ),
    (_growing, "not at the first token, and farther apart later: positions, or the KV cache"),
    (_on_rare_tokens, "on rare tokens above all: the vocabulary's padding, or experts"),
    (_alike, "in every token alike: the weights' precision, a cast, or the cache's precision"),
)
