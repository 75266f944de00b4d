"""Counts what the judged pairs showed: broken invariants by kind, and figures of each side."""

from __future__ import annotations

import bisect
import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_VALUES = 100_000
"""Values of one figure that are kept; later ones are dropped, and no bound depends on them."""


@dataclass(frozen=True)
class SideJudgement:
    """The judgement of one side's answer."""

    broken: Mapping[str, str] = field(default_factory=dict)
    """The broken kinds, each with its first sentence."""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PairJudgement:
    """The judgement of a pair; `left_out` is why it is not judged."""

    stable: SideJudgement = field(default_factory=SideJudgement)
    canary: SideJudgement = field(default_factory=SideJudgement)
    left_out: str = ""
    same: bool | None = None
    """For a greedy request: whether both sides answered the same text."""
    parts_at: int | None = None
    """The first character at which two greedy answers differ."""
    parted: tuple[str, str, str] | None = None
    """The model, and both texts until shortly after they differ; not stored."""
    parts_at_token: int | None = None
    """The first token at which two greedy answers differ."""

    @property
    def canary_only(self) -> tuple[str, ...]:
        """The kinds that only the canary breaks."""
        return tuple(kind for kind in self.canary.broken if kind not in self.stable.broken)


@dataclass
class KindCount:
    """In how many pairs a kind was broken, and by which side."""

    canary_only: int = 0
    stable_only: int = 0
    both: int = 0
    last: str = ""
    """The last sentence about a failure of only the canary."""


@dataclass
class Values:
    """A figure's values of both sides, from pairs in which both have it; each list is sorted."""

    stable: list[float] = field(default_factory=list)
    canary: list[float] = field(default_factory=list)

    def add(self, stable: float, canary: float) -> None:
        """Add the values of one pair."""
        if len(self.stable) < MOST_VALUES:
            bisect.insort(self.stable, stable)
            bisect.insort(self.canary, canary)


class Tally:
    """All pairs so far."""

    def __init__(self, kinds: Iterable[str], figures: Iterable[str]) -> None:
        self.pairs = 0
        self.kinds = {kind: KindCount() for kind in kinds}
        self.any = KindCount()
        """Pairs in which any kind is broken."""
        self.figures = {figure: Values() for figure in figures}
        self.left_out: Counter[str] = Counter()
        """Pairs that are not judged, by the reason."""
        self.greedy = self.greedy_same = 0
        self.parts: list[int] = []
        """The first differing characters of greedy answers that differ; sorted."""
        self.token_parts: list[int] = []
        """The first differing tokens, as far as they could be counted; sorted."""

    def snapshot(self) -> Tally:
        """Return a snapshot for another thread."""
        return copy.deepcopy(self)

    def add(self, judged: PairJudgement) -> None:
        """Count a pair."""
        if judged.left_out:
            self.left_out[judged.left_out] += 1
            return
        self.pairs += 1
        stable, canary = judged.stable, judged.canary
        for kind in {*stable.broken, *canary.broken}:
            _count(self.kinds[kind], kind in stable.broken, canary.broken.get(kind))
        _count(self.any, bool(stable.broken), next(iter(canary.broken.values()), None))
        for figure, value in canary.figures.items():
            if figure in stable.figures:
                self.figures[figure].add(stable.figures[figure], value)
        if judged.same is not None:
            self.greedy += 1
            self.greedy_same += judged.same
        if judged.parts_at is not None and len(self.parts) < MOST_VALUES:
            bisect.insort(self.parts, judged.parts_at)
        if judged.parts_at_token is not None and len(self.token_parts) < MOST_VALUES:
            bisect.insort(self.token_parts, judged.parts_at_token)


def _count(count: KindCount, stable_broke: bool, sentence: str | None) -> None:
    if sentence is None:
        count.stable_only += stable_broke
    elif stable_broke:
        count.both += 1
    else:
        count.canary_only += 1
        count.last = sentence
