"""Two lanes' results side by side: what is new, what both have, and what changed unnoticed.

A check that fails on both lanes is a defect of the deployment that the change did not bring; one
that fails on ours alone is a regression. What differs without a failure is drift: nobody asked for
it, no gate forbids it, and the next incident may start there.

Which evidence is held side by side although no check failed, read from `drift.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.outcomes import Outcome, TestResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SHIPPED = data.FOLDER / "drift.toml"


class Watched(toml.Record):
    """One piece of a check's evidence, by the key it is written under."""

    gate: str
    test: str
    where: str
    """What a person calls it."""
    key: str | None = None
    """None for all of the check's evidence."""


class _WatchedFile(toml.Record):
    watched: tuple[Watched, ...]


def load() -> tuple[Watched, ...]:
    """Return all that is watched."""
    return toml.load(SHIPPED, _WatchedFile).watched


MARGIN = 0.05
"""The share by which a figure may differ: the memory of two boots is never quite the same."""
THERE = "there"
Key = tuple[str, str, str]
"""Family, gate and test."""


class ComparedKind(StrEnum):
    """What it means that a check came to something else on the two lanes, or failed on both."""

    REGRESSION = "regression"
    BOTH = "both"
    MENDED = "mended"
    UNEQUAL = "unequal"


@dataclass(frozen=True)
class ComparedCheck:
    """One check that did not pass on both lanes alike; None where a lane did not run it."""

    family: str
    gate: str
    test: str
    kind: ComparedKind
    ours: Outcome | None
    theirs: Outcome | None
    ours_says: str = ""
    theirs_says: str = ""


@dataclass(frozen=True)
class LaneDrift:
    """One thing that is otherwise on our lane although nothing failed; None where it is not."""

    family: str
    where: str
    name: str
    ours: str | None
    theirs: str | None


def by_key(results: Iterable[TestResult]) -> dict[Key, TestResult]:
    """Return results by family, gate and test."""
    return {(result.family, result.gate, result.test): result for result in results}


def failing(results: Iterable[TestResult]) -> frozenset[Key]:
    """Return the checks that fail."""
    return frozenset(
        key for key, test_result in by_key(results).items() if test_result.outcome is Outcome.FAIL
    )


def checks(ours: Iterable[TestResult], theirs: Iterable[TestResult]) -> tuple[ComparedCheck, ...]:
    """Return every check of which the two lanes' outcomes differ, or that fails on both."""
    left, right = by_key(ours), by_key(theirs)
    found = []
    for key in dict.fromkeys((*left, *right)):
        mine, other = left.get(key), right.get(key)
        here, there = (
            test_result.outcome if test_result else None for test_result in (mine, other)
        )
        kind = _kind(here, there)
        if kind:
            found.append(
                ComparedCheck(
                    *key,
                    kind,
                    here,
                    there,
                    mine.reason if mine else "",
                    other.reason if other else "",
                )
            )
    order = list(ComparedKind)
    return tuple(sorted(found, key=lambda check: order.index(check.kind)))


def _kind(ours: Outcome | None, theirs: Outcome | None) -> ComparedKind | None:
    if ours is theirs:
        return ComparedKind.BOTH if ours is Outcome.FAIL else None
    if ours is Outcome.FAIL:
        return ComparedKind.REGRESSION
    return ComparedKind.MENDED if theirs is Outcome.FAIL else ComparedKind.UNEQUAL


def drift(
    ours: Sequence[TestResult], theirs: Sequence[TestResult], watched: Iterable[Watched]
) -> tuple[LaneDrift, ...]:
    """Return what the evidence of checks that both lanes ran says otherwise, where it is watched.

    A check that fails on one of them tells the difference itself.
    """
    left, right = by_key(ours), by_key(theirs)
    looked_at = {(entry.gate, entry.test): entry for entry in watched}
    found = []
    for key in (pair for pair in left if pair in right):
        family, gate, test = key
        what = looked_at.get((gate, test.partition("[")[0]))
        if what is None or Outcome.FAIL in (left[key].outcome, right[key].outcome):
            continue
        mine, other = (_evidence(side[key], what) for side in (left, right))
        if mine is None or other is None:
            continue
        found += [
            LaneDrift(family, what.where, name, *values)
            for name, *values in _differing(mine, other)
        ]
    return tuple(found)


def _evidence(result: TestResult, what: Watched) -> Any:
    return result.evidence.get(what.key) if what.key else result.evidence


def _differing(ours: Any, theirs: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield name, our value and theirs of every leaf that differs."""
    left, right = dict(_leaves(ours)), dict(_leaves(theirs))
    for name in dict.fromkeys((*left, *right)):
        mine, other = left.get(name), right.get(name)
        if mine != other and not _close(mine, other):
            yield name, _told(mine), _told(other)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with the way to it; what a list holds is there or is not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}: {key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield (f"{name}: {inner}" if name else str(inner)), THERE
    else:
        yield name, value


def _close(ours: Any, theirs: Any) -> bool:
    numbers = [
        entry
        for entry in (ours, theirs)
        if isinstance(entry, (int, float)) and not isinstance(entry, bool)
    ]
    return len(numbers) == 2 and abs(ours - theirs) <= MARGIN * abs(theirs)  # noqa: PLR2004


def _told(value: Any) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def documents(
    found: tuple[ComparedCheck, ...], drifted: tuple[LaneDrift, ...]
) -> Mapping[str, list[dict[str, Any]]]:
    """Return both as they stand in `verdict.json`."""
    return {
        "checks": [
            {
                "family": check.family,
                "gate": check.gate,
                "test": check.test,
                "kind": str(check.kind),
                "ours": check.ours and str(check.ours),
                "theirs": check.theirs and str(check.theirs),
                "ours_says": check.ours_says,
                "theirs_says": check.theirs_says,
            }
            for check in found
        ],
        "drift": [dict(vars(lane_drift)) for lane_drift in drifted],
    }
