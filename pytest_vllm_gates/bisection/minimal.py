"""Which of several changes are needed for a bad outcome.

First a search for the shortest bad beginning, which takes log2(n) + 1 tests for one culprit. What
it finds is checked; where outcomes contradict it, delta debugging decides: the algorithm `ddmin` of
A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions
on Software Engineering 28(2), 2002, pages 183 to 200, with its third outcome, unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_vllm_gates.bisection.types import TrialAnswer

Test = Callable[[frozenset[str]], TrialAnswer]
"""Returns the outcome where these changes, and no other, are made."""
HALVES = 2
BAD, GOOD = TrialAnswer.BAD, TrialAnswer.GOOD


@dataclass(frozen=True)
class MinimalSet:
    """Changes that are bad together."""

    items: tuple[str, ...]
    proven: bool
    """Whether they alone are bad, and good as soon as any one of them is missing."""
    entangled: tuple[str, ...] = ()
    """Those of them without which nothing could be judged."""


def find(items: Sequence[str], test: Test) -> MinimalSet:
    """Return a set of changes that is bad and of which none can be left out.

    No changes are taken to be good, and all of them to be bad.
    """
    found = _beginning(tuple(items), test)
    if found is None or test(frozenset(found)) is not BAD:
        found = ddmin(tuple(items), test)
    return _checked(found, test)


def _checked(found: tuple[str, ...], test: Test) -> MinimalSet:
    """Return `found` without what is not needed, and whether the rest is."""
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
    """Return the changes that end the shortest bad beginnings; None where outcomes contradict."""
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
        # Between the two lies one change, or several that could not be told apart.
        found = (*found, *rest[low:high])
        rest = rest[:low]
    return found


def ddmin(items: tuple[str, ...], test: Test) -> tuple[str, ...]:
    """Return a subset that is bad and stays so without no single one of its parts."""
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
