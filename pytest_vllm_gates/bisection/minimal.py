"""Finds the changes that a bad outcome needs, out of several.

First a search for the shortest bad beginning, which takes log2(n) + 1 tests for one culprit. Its
result is checked; if outcomes contradict it, delta debugging decides: the algorithm `ddmin` of
A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions
on Software Engineering 28(2), 2002, pages 183 to 200, with its third outcome, unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_vllm_gates.bisection.types import TrialAnswer

Test = Callable[[frozenset[str]], TrialAnswer]
"""Returns the outcome with only these changes made."""
HALVES = 2
BAD, GOOD = TrialAnswer.BAD, TrialAnswer.GOOD


@dataclass(frozen=True)
class MinimalSet:
    """Changes that are bad together."""

    items: tuple[str, ...]
    proven: bool
    """Whether only they are bad, and good without any one of them."""
    entangled: tuple[str, ...] = ()
    """Changes that could not be left out, because nothing could be judged without them."""


def find(items: Sequence[str], test: Test) -> MinimalSet:
    """Return a bad set of changes in which every change is needed.

    Assumes that no change is good and all changes together are bad.
    """
    found = _beginning(tuple(items), test)
    if found is None or test(frozenset(found)) is not BAD:
        found = ddmin(tuple(items), test)
    return _checked(found, test)


def _checked(found: tuple[str, ...], test: Test) -> MinimalSet:
    """Return `found` without unneeded changes, and whether the rest is needed."""
    needed, entangled = list(found), []
    for item in found:
        others = frozenset(needed) - {item}
        answer = test(others) if others else GOOD
        if answer is BAD:
            needed.remove(item)
        elif answer is not GOOD:
            entangled.append(item)
    return MinimalSet(
        tuple(needed), not entangled, tuple(item for item in entangled if item in needed)
    )


def _beginning(items: tuple[str, ...], test: Test) -> tuple[str, ...] | None:
    """Return the changes that end the shortest bad beginnings; None if outcomes contradict."""
    found: tuple[str, ...] = ()
    rest = items
    while not found or test(frozenset(found)) is not BAD:
        if not rest:
            return None
        low, high = 0, len(rest)
        untried = set(range(1, high))
        while candidates := [size for size in untried if low < size < high]:
            size = min(candidates, key=lambda size: (abs(size - (low + high) / 2), size))
            untried.discard(size)
            answer = test(frozenset(found) | frozenset(rest[:size]))
            if answer is BAD:
                high = size
            elif answer is GOOD:
                low = size
        # Between the two is one change, or several that could not be separated.
        found = (*found, *rest[low:high])
        rest = rest[:low]
    return found


def ddmin(items: tuple[str, ...], test: Test) -> tuple[str, ...]:
    """Return a bad subset that is not bad without any single one of its parts."""
    parts = HALVES
    while len(items) > 1:
        chunks = [
            items[len(items) * index // parts : len(items) * (index + 1) // parts]
            for index in range(parts)
        ]
        complements = [tuple(item for item in items if item not in chunk) for chunk in chunks]
        smaller = next((chunk for chunk in chunks if test(frozenset(chunk)) is BAD), None)
        if smaller is not None:
            items, parts = smaller, 2
            continue
        smaller = next(
            (rest for rest in complements if rest and test(frozenset(rest)) is BAD), None
        )
        if smaller is not None and parts > HALVES:
            items, parts = smaller, max(parts - 1, 2)
        elif parts < len(items):
            parts = min(len(items), 2 * parts)
        else:
            break
    return items
