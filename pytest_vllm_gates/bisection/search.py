"""The whole search: by axis, then along each guilty axis. A caller supplies the outcomes.

The search requests each trial of a mixture once. A caller may keep the answers: a search that
starts again with the same answers takes the same steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.bisection import change_point, minimal
from pytest_vllm_gates.bisection.types import (
    AxisCulprit,
    BisectResult,
    Mixture,
    TrialAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_vllm_gates.bisection.types import Ask, AxisSpan

BAD, GOOD, INCONCLUSIVE = TrialAnswer.BAD, TrialAnswer.GOOD, TrialAnswer.INCONCLUSIVE
FLAKY = 0.2
"""The assumed rate of wrong answers after one mixture has given two different answers."""
MOST_TRIALS = 40
SURE = 3
"""Equal answers on each side of the result that make it certain. With two, and 1 undeclared wrong
answer in 20, 1 search in 150 was wrong and certain (`benchmarks/bisect_search.py`): a wrong answer
ends the search beside itself, so that it becomes a side, and one more wrong answer confirms it."""


class _ContradictionError(Exception):
    """One mixture has given two different answers, though answers were assumed to repeat."""


@dataclass
class _Asked:
    """The answers so far, and the confidence of each decision."""

    ask: Ask
    error: float
    """The rate of wrong answers; 0: answers repeat."""
    doubt: float
    trials: dict[Mixture, list[TrialAnswer]] = field(default_factory=dict)
    confidence: float = 1.0

    def once_more(self, mixture: Mixture) -> TrialAnswer:
        """Return the answer of one more trial."""
        earlier = self.trials.setdefault(mixture, [])
        answer = self.ask(mixture, len(earlier) + 1)
        if self.error == 0 and any(_contradict(answer, each) for each in earlier):
            raise _ContradictionError
        earlier.append(answer)
        return answer

    def decided(self, mixture: Mixture) -> TrialAnswer:
        """Return the answer, from as many trials as needed: a sequential test of the odds."""
        if self.error == 0:
            earlier = self.trials.get(mixture)
            return earlier[0] if earlier else self.once_more(mixture)
        needed = math.ceil(math.log((1 - self.doubt) / self.doubt) / self._odds)
        while (lead := self._lead(mixture)) is not None and abs(lead) < needed:
            if len(self.trials.get(mixture, ())) >= MOST_TRIALS:
                return INCONCLUSIVE
            self.once_more(mixture)
        if lead is None:
            return INCONCLUSIVE
        self.confidence -= 1 / (1 + math.exp(abs(lead) * self._odds))
        return BAD if lead > 0 else GOOD

    @property
    def _odds(self) -> float:
        return math.log((1 - self.error) / self.error)

    def _lead(self, mixture: Mixture) -> int | None:
        """Return how many more answers were bad than good; None if nothing can be judged."""
        answers = self.trials.get(mixture, [])
        if answers.count(INCONCLUSIVE) >= change_point.GIVE_UP_AFTER:
            return None
        return answers.count(BAD) - answers.count(GOOD)


def _contradict(one: TrialAnswer, other: TrialAnswer) -> bool:
    return {one, other} == {GOOD, BAD}


def find(
    axes: Sequence[AxisSpan], ask: Ask, *, error: float = 0.0, doubt: float = 0.01
) -> BisectResult:
    """Return the change that makes the bundle bad.

    `error` is the rate of wrong answers (0: answers repeat; below 0.5), `doubt` the allowed
    probability of a wrong result if answers may be wrong. If answers were assumed to repeat and do
    not, the search starts again with the answers so far and `error` at `FLAKY`.
    """
    result = _attempt(axes, ask, error, doubt)
    if result is not None:
        return result
    result = _attempt(axes, ask, FLAKY, doubt)
    assert result is not None  # noqa: S101 - no contradiction is raised where answers may be wrong
    note = f"one bundle gave two different answers: assuming 1 wrong answer in {1 / FLAKY:.0f}"
    return BisectResult(result.culprits, False, result.confidence, (note, *result.reasons))


def _attempt(axes: Sequence[AxisSpan], ask: Ask, error: float, doubt: float) -> BisectResult | None:
    # The doubt is shared by the two ends, the axes and the rest.
    asked = _Asked(ask, error, doubt / (4 + 2 * len(axes)))
    try:
        return _found(axes, asked)
    except _ContradictionError:
        return None


def _found(axes: Sequence[AxisSpan], asked: _Asked) -> BisectResult:
    by_name = {axis.name: axis for axis in axes}
    if not axes:
        return BisectResult(reasons=("the two lanes do not differ in anything that can be mixed",))
    everything = Mixture(frozenset(by_name))
    # The bad one first: its failures are the tests that judge the others.
    for mixture, wanted, lane in ((everything, BAD, "bad"), (Mixture(), GOOD, "good")):
        answer = asked.decided(mixture)
        if answer is not wanted:
            return BisectResult(reasons=(f"the {lane} lane answers {answer}, not {wanted}",))
    needed = minimal.find([*by_name], lambda names: asked.decided(Mixture(names)))
    names = frozenset(needed.items)
    reasons: list[str] = []
    if needed.entangled:
        others = [name for name in needed.items if name not in needed.entangled]
        kept_apart = ", ".join(needed.entangled)
        reasons.append(
            f"{kept_apart} could not be separated from {', '.join(others) or 'each other'}: "
            "no bundle with one and without the other could be judged"
        )
    culprits = []
    for name in needed.items:
        culprit, edges, confidence = _along(by_name[name], names, asked)
        culprits.append(culprit)
        asked.confidence *= confidence
        if culprit.untried:
            reasons.append(f"not judged between the two: {', '.join(culprit.untried)}")
        if culprit.without_wheel:
            reasons.append(f"without a wheel between the two: {len(culprit.without_wheel)} commits")
        if asked.error == 0:
            reasons += _confirmed(edges, asked)
    certain = asked.error == 0 and needed.proven and not reasons
    confidence = max(0.0, asked.confidence)
    return BisectResult(tuple(culprits), certain, confidence, tuple(reasons))


def _confirmed(edges: Mapping[Mixture, TrialAnswer], asked: _Asked) -> list[str]:
    """Test both edges of the result again; return why the result is not confirmed, if so.

    Each edge gets `SURE` answers in all. An answer that differs from the search's conclusion
    contradicts it, also for an edge that was not tested before.
    """
    for answers in range(1, SURE + 1):
        for mixture, concluded in edges.items():
            while len(asked.trials.get(mixture, [])) < answers:
                if _contradict(asked.once_more(mixture), concluded):
                    raise _ContradictionError
    return [
        f"{mixture.key}: could not be judged once more"
        for mixture in edges
        if INCONCLUSIVE in asked.trials[mixture]
    ]


def _along(
    axis: AxisSpan, names: frozenset[str], asked: _Asked
) -> tuple[AxisCulprit, dict[Mixture, TrialAnswer], float]:
    """Return the culprit along one axis, the mixtures on both sides, and the confidence."""
    others = names - {axis.name}
    ends = {Mixture(others): GOOD, Mixture(names): BAD}
    if axis.versions:
        return _along_versions(axis, others, ends, asked)
    if len(axis.items) > 1:

        def test(items: frozenset[str]) -> TrialAnswer:
            if items == frozenset(axis.items):
                return BAD
            return asked.decided(Mixture(others, items=(axis.name, items)))

        needed = minimal.find(axis.items, test)
        edge = Mixture(others, items=(axis.name, frozenset(needed.items)))
        if needed.items == axis.items:
            edge = Mixture(names)
        sure = 1.0 if needed.proven else 0.5
        return (
            AxisCulprit(axis.name, axis.good, axis.bad, items=needed.items),
            {Mixture(others): GOOD, edge: BAD},
            sure,
        )
    return AxisCulprit(axis.name, axis.good, axis.bad, items=axis.items), ends, 1.0


def _along_versions(
    axis: AxisSpan,
    others: frozenset[str],
    ends: dict[Mixture, TrialAnswer],
    asked: _Asked,
) -> tuple[AxisCulprit, dict[Mixture, TrialAnswer], float]:
    low_end, high_end = ends
    last = len(axis.versions) - 1

    def mixture(position: int) -> Mixture:
        if position in (0, last):
            return high_end if position else low_end
        return Mixture(others, version=(axis.name, axis.versions[position]))

    if asked.error:
        found = change_point.noisy(
            last + 1, lambda at: asked.once_more(mixture(at)), error=asked.error, doubt=asked.doubt
        )
    else:
        found = change_point.repeatable(last + 1, lambda at: asked.decided(mixture(at)))
    culprit = AxisCulprit(
        axis.name,
        axis.versions[found.last_good],
        axis.versions[found.first_bad],
        untried=axis.versions[found.last_good + 1 : found.first_bad],
        newer_good=axis.newer_good,
        without_wheel=tuple(
            each for gap in axis.missing[found.last_good : found.first_bad] for each in gap
        ),
    )
    edges = {mixture(found.last_good): GOOD, mixture(found.first_bad): BAD}
    return culprit, edges, found.confidence
