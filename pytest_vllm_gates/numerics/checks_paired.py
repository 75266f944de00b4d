"""Compares two runs token by token: equivalent, different, or undecided, at stated odds.

The same tokens were forced through both, so that the log-probabilities of a token are a pair, and
the text's own effect cancels. Texts are the units: tokens of one text depend on each other. For
each text, D is the mean absolute difference between the runs, and A is the same between the trusted
run's scores alone and in a batch: a harmless difference. The mean over the texts of
log((D + floor) / (A + floor)) is compared with the logarithm of a margin by Student's t.

Twice: over all tokens, and over the nine tenths that are closest. A mixture of experts routes a
token differently now and then, also in a harmless batch; the distances of those few tokens vary so
much that they hide the others.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_vllm_gates.catalog.scales import HarmlessNats
    from pytest_vllm_gates.numerics.forced import ForcedRounds
    from pytest_vllm_gates.numerics.forced_types import ForcedRun, ForcedText

ALARM = 1e-6
"""How often a run of all phases may call equal servers different."""
MISS = 1e-3
MARGIN = 2.0
"""A distance of more than so many times the batch's own effect is not harmless."""
FLOOR = 1e-4
"""Nats; the recorded numbers are rounded to a tenth of it."""
ROUNDINGS = math.sqrt(2)
"""Two correct kernels may differ by the roundings of both."""
CLOSEST = 0.9
LEAST_TEXTS = 5
NAMED_TOKENS = 8192
"""So many tokens show what a difference resembles; the shipped texts have fewer in all."""
LEAST_TOKENS = 8


class Equivalence(StrEnum):
    """The result of a comparison."""

    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    UNKNOWN = "cannot tell"


class ForcedPhase(StrEnum):
    """The compared phase of two runs."""

    ALONE = "alone"
    TOGETHER = "in company"
    ANSWER = "while answering"


TESTS = 2 * len(ForcedPhase)


@dataclass(frozen=True)
class Comparison:
    """One phase of two runs."""

    phase: ForcedPhase
    answer: Equivalence
    texts: int
    tokens: int
    nats: float
    """The mean of D over the texts, of all tokens."""
    harmless_nats: float
    """The mean of A over the texts, of all tokens."""
    odds: float
    """How often equal servers are as far apart or farther; 1 if they are not."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def paired(trusted: ForcedRun, now: ForcedRun) -> list[tuple[ForcedText, ForcedText]]:
    """Return the texts that both runs have with the same tokens."""
    mine = {text.name: text for text in now.texts}
    return [
        (text, mine[text.name])
        for text in trusted.texts
        if text.name in mine and mine[text.name].ids == text.ids
    ]


def other_flags(trusted: ForcedRun, now: ForcedRun) -> Iterator[str]:
    """Yield each flag of precision or positions that differs between the declarations, in words."""
    for name in sorted({*trusted.declared, *now.declared}):
        before, after = trusted.declared.get(name), now.declared.get(name)
        if before != after:
            yield f"{name} was {before or 'not given'} and is {after or 'not given'}"


def same_build(trusted: ForcedRun, now: ForcedRun) -> bool:
    """Return whether both runs were the same vLLM on the same hardware."""
    return (trusted.build, trusted.machine) == (now.build, now.machine)


def another_machine(trusted: ForcedRun, now: ForcedRun) -> bool:
    """Return whether both runs were the same vLLM on two machines."""
    return trusted.build == now.build and trusted.machine != now.machine


def compare(
    trusted: ForcedRun,
    now: ForcedRun,
    rounding: Mapping[str, float] | None = None,
    between_machines: HarmlessNats | None = None,
    *,
    looks: int = 1,
) -> list[Comparison]:
    """Compare every phase.

    A caller that compares after each of several rounds, and stops at the first that is different,
    passes in `looks` how many rounds there are: all of them together raise as few false alarms as
    one comparison.

    `rounding` has by text how far the trusted run is from fp32, in nats. Between two builds the
    kernels may differ, which the batch's effect does not show: then only a distance beyond both
    roundings is different, and one in between is undecided. `between_machines` is the distance of
    two machines with one build: between others of one build that is harmless, too.
    """
    pairs = paired(trusted, now)
    wide = None if same_build(trusted, now) else (rounding or {})
    scale = between_machines if another_machine(trusted, now) else None
    alarm = ALARM / TESTS / looks
    return [_phase(phase, pairs, wide, scale, alarm) for phase in ForcedPhase]


def until_different(
    trusted: ForcedRun,
    rounds: ForcedRounds,
    between_machines: HarmlessNats | None = None,
) -> tuple[ForcedRun, list[Comparison]]:
    """Force round by round, up to the first that is different; return the run so far.

    Only a difference ends it early: a text cannot be called equal before it was forced. It does not
    end before `NAMED_TOKENS` either, because fewer show a difference but not what it resembles.
    """
    now, comparisons, found = rounds.nothing, list[Comparison](), list[Comparison]()
    for now in rounds:
        comparisons = compare(trusted, now, None, between_machines, looks=rounds.looks)
        if any(each.answer is Equivalence.DIFFERENT for each in comparisons):
            found = comparisons
        if found and now.tokens >= NAMED_TOKENS:
            break
    return now, found or comparisons


def distance(one: Sequence[float], other: Sequence[float], part: float = 1.0) -> float:
    """Return the mean absolute difference over the closest part of the tokens, in nats."""
    apart = sorted(abs(a - b) for a, b in zip(one, other, strict=True))
    return statistics.fmean(apart[: max(1, math.ceil(len(apart) * part))]) if apart else 0.0


def _phase(
    phase: ForcedPhase,
    pairs: Sequence[tuple[ForcedText, ForcedText]],
    wide: Mapping[str, float] | None,
    scale: HarmlessNats | None,
    alarm: float,
) -> Comparison:
    scores = [(trusted, *scores_of(phase, trusted, now)) for trusted, now in pairs]
    scores = [entry for entry in scores if len(entry[1]) >= LEAST_TOKENS]
    decisions = []
    for part in (1.0, CLOSEST):
        distances = [distance(one, other, part) for _, one, other in scores]
        harmless = [distance(text.alone, text.together, part) for text, _, _ in scores]
        if scale:
            known = scale.nats if part == 1.0 else scale.closest_nats
            harmless = [max(near, known) for near in harmless]
        decisions.append(_decide(distances, harmless, alarm))
        if decisions[-1][0] is Equivalence.DIFFERENT and (wide if scale else wide is not None):
            roundings = [(wide or {}).get(text.name) for text, _, _ in scores]
            decisions[-1] = _between_builds(distances, harmless, roundings, alarm)
    answers = [answer for answer, _ in decisions]
    answer = Equivalence.DIFFERENT if Equivalence.DIFFERENT in answers else answers[-1]
    return Comparison(
        phase,
        answer,
        texts=len(scores),
        tokens=sum(len(one) for _, one, _ in scores),
        nats=_mean(distance(one, other) for _, one, other in scores),
        harmless_nats=_mean(distance(text.alone, text.together) for text, _, _ in scores),
        odds=min(odds for _, odds in decisions),
    )


def _mean(values: Iterable[float]) -> float:
    known = [*values]
    return statistics.fmean(known) if known else 0.0


def scores_of(
    phase: ForcedPhase, trusted: ForcedText, now: ForcedText
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the paired scores of a phase."""
    if phase is ForcedPhase.ALONE:
        return trusted.alone, now.alone
    if phase is ForcedPhase.TOGETHER:
        return trusted.together, now.together
    same = 0
    for one, other in zip(trusted.answer, now.answer, strict=False):
        if one != other:
            break
        same += 1
    return trusted.answer_logprobs[:same], now.answer_logprobs[:same]


def _decide(
    distances: Sequence[float], harmless: Sequence[float], alarm: float
) -> tuple[Equivalence, float]:
    """Return the result of the distances, and how often equal servers are as far apart."""
    if len(distances) < LEAST_TEXTS:
        return Equivalence.UNKNOWN, 1.0
    ratios = [
        math.log((far + FLOOR) / (near + FLOOR))
        for far, near in zip(distances, harmless, strict=True)
    ]
    above = statistics.fmean(ratios) - math.log(MARGIN)
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
    if error == 0.0:
        different = above > 0
        return (Equivalence.DIFFERENT, 0.0) if different else (Equivalence.EQUIVALENT, 1.0)
    from scipy import special  # noqa: PLC0415 - slow to import; scipy.stats takes 60 MB

    # Student's t: the probability of a value as far above.
    odds = float(special.stdtr(len(ratios) - 1, -above / error))
    if odds <= alarm:
        return Equivalence.DIFFERENT, odds
    return (Equivalence.EQUIVALENT if 1 - odds <= MISS else Equivalence.UNKNOWN), odds


def _between_builds(
    distances: Sequence[float],
    harmless: Sequence[float],
    roundings: Sequence[float | None],
    alarm: float,
) -> tuple[Equivalence, float]:
    known = [rounding for rounding in roundings if rounding is not None]
    if len(known) < len(distances):
        return Equivalence.UNKNOWN, 1.0
    widened = [
        max(near, rounding * ROUNDINGS) for near, rounding in zip(harmless, known, strict=True)
    ]
    answer, odds = _decide(distances, widened, alarm)
    return (answer if answer is Equivalence.DIFFERENT else Equivalence.UNKNOWN), odds
