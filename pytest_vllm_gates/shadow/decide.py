"""Decides from the pairs so far: PROMOTE, REJECT, or HOLD, which means to keep watching.

REJECT has a chance of at most `alpha` on a canary that is not worse, however often one looks: alpha
is shared among all tests (union bound). PROMOTE requires that every bound is met, each at `alpha`;
the chance of a PROMOTE for a canary that is worse by a margin is then at most `alpha` as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_vllm_gates.shadow import sequential
from pytest_vllm_gates.shadow.figures import FigureState, figure_state
from pytest_vllm_gates.shadow.sequential import BY_ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_vllm_gates.shadow.settings import ShadowSettings
    from pytest_vllm_gates.shadow.tally import KindCount, Tally

PROMOTE, REJECT, HOLD = "PROMOTE", "REJECT", "HOLD"
FEWEST_FAILURES = 2
"""A single broken answer never rejects, whatever its odds."""
ABSOLUTE, COMPARED = "absolute", "compared"


@dataclass(frozen=True)
class Question:
    """The certainty that a decision requires."""

    alpha: float = 1e-3
    """The chance of a false REJECT over all looks."""
    margin: float = 0.01
    """By how much the canary's rate of failures may be higher, as a share of answers."""
    least_pairs: int = 500
    """No PROMOTE before so many pairs."""


@dataclass(frozen=True)
class KindState:
    """The counts, evidence and bound of one kind."""

    name: str
    count: KindCount
    test: str
    """The test with the most evidence relative to what it needs: `absolute` or `compared`."""
    odds: float
    """The evidence that the canary is worse, as odds."""
    needed: float
    """The odds at which the canary is rejected."""
    upper: float
    """The upper bound of how much higher the canary's failure rate is."""
    until_reject: int | None = None
    """About how many more pairs would reject it at the present rates."""
    until_promote: int | None = None

    @property
    def rejected(self) -> bool:
        """Whether the canary is worse."""
        return self.odds >= self.needed and self.count.canary_only >= FEWEST_FAILURES


@dataclass(frozen=True)
class ShadowDecision:
    """The answer to a question, with the data that it rests on."""

    promotion: str
    reasons: tuple[str, ...]
    pairs: int
    more_pairs: int | None
    """About how many more pairs a PROMOTE needs at the present rates; None: it is not near."""
    kinds: tuple[KindState, ...] = ()
    figures: tuple[FigureState, ...] = ()


def decide(
    tally: Tally, settings: ShadowSettings, question: Question, *, forecast: bool = False
) -> ShadowDecision:
    """Return the decision at this moment; with `forecast`, also how many more pairs it needs."""
    kinds = tuple(
        kind_state(name, count, tally.pairs, settings, question, forecast=forecast)
        for name, count in tally.kinds.items()
    )
    level = question.alpha * settings.shares.figures / max(1, settings.quantiles)
    figures = tuple(
        figure_state(name, quantile, settings.figures[name], values, (level, question.alpha))
        for name, values in tally.figures.items()
        if values.stable
        for quantile in settings.figures[name].quantiles
    )
    bad = [_kind_reason(state) for state in kinds if state.rejected]
    bad += [state.reason for state in figures if state.rejected]
    if bad:
        return ShadowDecision(REJECT, tuple(bad), tally.pairs, None, kinds, figures)
    weighty = [state for state in figures if state.is_weighty(tally.pairs)]
    missing = [
        *_missing_pairs(tally.pairs, question),
        *_missing_of_kinds(kinds, question),
        *(
            (state.until_promote(tally.pairs) if forecast else None, state.reason)
            for state in weighty
            if not state.fine
        ),
    ]
    if not missing:
        reason = (
            f"{tally.pairs} pairs: no kind fails {question.margin:.2%} more often on the canary, "
            f"and {len(weighty)} quantiles are within their ratio"
        )
        return ShadowDecision(PROMOTE, (reason,), tally.pairs, 0, kinds, figures)
    needs = [need for need, _ in missing if need is not None]
    more = max(needs) if len(needs) == len(missing) else None
    reasons = tuple(reason for _, reason in missing)
    return ShadowDecision(HOLD, reasons, tally.pairs, more, kinds, figures)


Missing = tuple[int | None, str]
"""The reason against PROMOTE, with the pairs it needs; None if no number suffices."""


def _missing_pairs(pairs: int, question: Question) -> Iterator[Missing]:
    if pairs < question.least_pairs:
        yield (
            question.least_pairs - pairs,
            f"{pairs} of at least {question.least_pairs} pairs are judged",
        )


def _missing_of_kinds(kinds: Sequence[KindState], question: Question) -> Iterator[Missing]:
    """Yield the kinds that may be worse by the margin; those without a failure are one."""
    open_kinds = [state for state in kinds if state.upper >= question.margin]
    failing = [state for state in open_kinds if state.count.canary_only]
    for state in failing:
        yield (
            state.until_promote,
            f"{state.name}: the canary alone fails {state.count.canary_only} times, the stable "
            f"server alone {state.count.stable_only}: it may fail {state.upper:.2%} more often, "
            f"{question.margin:.2%} is allowed",
        )
    if len(open_kinds) > len(failing):
        first = next(state for state in open_kinds if not state.count.canary_only)
        yield (
            first.until_promote,
            f"{len(open_kinds) - len(failing)} kinds that the canary alone never fails: it may "
            f"fail {first.upper:.2%} more often, {question.margin:.2%} is allowed",
        )


def kind_state(
    name: str,
    count: KindCount,
    pairs: int,
    settings: ShadowSettings,
    question: Question,
    *,
    forecast: bool = False,
) -> KindState:
    """Return the state of one kind after `pairs` pairs."""
    canary, stable = count.canary_only, count.stable_only
    rate = settings.hard.get(name)
    tests = _tests(name, count, settings, question)
    log_odds = {test: _evidence(test, canary, stable, pairs, rate) for test in tests}
    test = max(tests, key=lambda each: log_odds[each] - math.log(tests[each]))
    reject = promote = None
    if forecast and canary > stable:
        reject = _until_reject(canary, stable, pairs, rate, tuple(tests.items()))
    if forecast and canary - stable < question.margin * max(1, pairs):
        promote = _until_promote(canary, stable, pairs, question)
    return KindState(
        name, count, test,
        odds=math.exp(min(700.0, max(-700.0, log_odds[test]))),
        needed=tests[test],
        upper=_upper(stable, canary, pairs, question.alpha),
        until_reject=reject,
        until_promote=promote,
    )  # fmt: skip


_upper = lru_cache(maxsize=1024)(sequential.upper_difference)
"""Most kinds have the same counts, which are zero."""


@lru_cache(maxsize=1024)
def _until_reject(
    canary: int,
    stable: int,
    pairs: int,
    rate: float | None,
    tests: tuple[tuple[str, float], ...],
) -> int | None:
    """Return how many more pairs would reject it at the present failure rate."""

    def reached(trials: int) -> bool:
        times = trials / max(1, pairs)
        more_canary, more_stable = round(canary * times), round(stable * times)
        return more_canary >= FEWEST_FAILURES and any(
            _evidence(test, more_canary, more_stable, trials, rate) >= math.log(needed)
            for test, needed in tests
        )

    trials = sequential.trials_until(reached, pairs)
    return None if trials is None else trials - pairs


@lru_cache(maxsize=1024)
def _until_promote(canary: int, stable: int, pairs: int, question: Question) -> int | None:
    """Return how many more pairs would meet the bound at the present failure rate."""

    def reached(trials: int) -> bool:
        times = trials / max(1, pairs)
        below = sequential.log_below(
            round(stable * times), round(canary * times), trials, question.margin
        )
        return below >= -math.log(question.alpha)

    trials = sequential.trials_until(reached, pairs)
    return None if trials is None else trials - pairs


def _tests(
    name: str, count: KindCount, settings: ShadowSettings, question: Question
) -> dict[str, float]:
    """Return the tests of a kind, each with the odds it needs.

    The rate of a hard kind is meant for servers that never break it by themselves. If the stable
    server breaks it too, the rate does not apply, and only the comparison is left.
    """
    shares = settings.shares
    tests = {COMPARED: len(settings.kinds) / (question.alpha * shares.compared)}
    if name in settings.hard and not count.stable_only and not count.both:
        tests[ABSOLUTE] = len(settings.hard) / (question.alpha * shares.absolute)
    return tests


def _evidence(test: str, canary: int, stable: int, pairs: int, rate: float | None) -> float:
    """Return the logarithm of a test's evidence that the canary is worse."""
    if test == ABSOLUTE and rate is not None:
        return sequential.log_excess(canary, pairs, rate, BY_ORDERS)
    return sequential.log_excess(canary, canary + stable, 0.5)


def _kind_reason(state: KindState) -> str:
    count = state.count
    return (
        f"{state.name}: the canary alone fails {count.canary_only} times, the stable server alone "
        f"{count.stable_only} times (odds {state.odds:.3g} : 1, {state.needed:.3g} : 1 are "
        f"needed): {count.last}"
    )
