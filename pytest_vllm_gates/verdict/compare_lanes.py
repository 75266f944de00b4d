"""Compares two lanes' results: regressions, defects of both lanes, and drift.

A check that fails on both lanes is an existing defect of the deployment; a check that fails only
on our lane is a regression. Drift is a difference without a failure: no gate forbids it, but the
next incident may start there. `drift.toml` lists the evidence that is compared for drift.
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
    """One piece of a check's evidence, by its key."""

    gate: str
    test: str
    where: str
    """Its readable name."""
    key: str | None = None
    """None for all of the check's evidence."""


class _WatchedFile(toml.Record):
    watched: tuple[Watched, ...]


def load() -> tuple[Watched, ...]:
    """Return all watched evidence."""
    return toml.load(SHIPPED, _WatchedFile).watched


MARGIN = 0.05
"""The share by which a figure may differ: the memory of two boots is never exactly equal."""
THERE = "there"
Key = tuple[str, str, str]
"""Family, gate and test."""


class ComparedKind(StrEnum):
    """How a check's outcomes on the two lanes differ, or that it fails on both."""

    REGRESSION = "regression"
    BOTH = "both"
    MENDED = "mended"
    UNEQUAL = "unequal"


@dataclass(frozen=True)
class ComparedCheck:
    """One check with different outcomes, or failed on both lanes; None if a lane did not run it."""

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
    """One difference between the lanes without a failure; None if a lane lacks the value."""

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
    """Return every check whose outcomes on the two lanes differ, or that fails on both."""
    our_results, their_results = by_key(ours), by_key(theirs)
    compared = []
    for key in dict.fromkeys((*our_results, *their_results)):
        our_result, their_result = our_results.get(key), their_results.get(key)
        our_outcome, their_outcome = (
            test_result.outcome if test_result else None
            for test_result in (our_result, their_result)
        )
        kind = _kind(our_outcome, their_outcome)
        if kind:
            compared.append(
                ComparedCheck(
                    *key,
                    kind,
                    our_outcome,
                    their_outcome,
                    our_result.reason if our_result else "",
                    their_result.reason if their_result else "",
                )
            )
    order = list(ComparedKind)
    return tuple(sorted(compared, key=lambda check: order.index(check.kind)))


def _kind(ours: Outcome | None, theirs: Outcome | None) -> ComparedKind | None:
    if ours is theirs:
        return ComparedKind.BOTH if ours is Outcome.FAIL else None
    if ours is Outcome.FAIL:
        return ComparedKind.REGRESSION
    return ComparedKind.MENDED if theirs is Outcome.FAIL else ComparedKind.UNEQUAL


def drift(
    ours: Sequence[TestResult], theirs: Sequence[TestResult], watched: Iterable[Watched]
) -> tuple[LaneDrift, ...]:
    """Return the differences in watched evidence of the checks that both lanes ran.

    A check that fails on one lane is left out: `checks` already compares it.
    """
    our_results, their_results = by_key(ours), by_key(theirs)
    evidence_by_test = {(evidence.gate, evidence.test): evidence for evidence in watched}
    drifts = []
    for key in (pair for pair in our_results if pair in their_results):
        family, gate, test = key
        evidence_key = evidence_by_test.get((gate, test.partition("[")[0]))
        if evidence_key is None or Outcome.FAIL in (
            our_results[key].outcome,
            their_results[key].outcome,
        ):
            continue
        our_evidence, their_evidence = (
            _evidence(side[key], evidence_key) for side in (our_results, their_results)
        )
        if our_evidence is None or their_evidence is None:
            continue
        drifts += [
            LaneDrift(family, evidence_key.where, name, *values)
            for name, *values in _differing(our_evidence, their_evidence)
        ]
    return tuple(drifts)


def _evidence(result: TestResult, watched: Watched) -> Any:
    return result.evidence.get(watched.key) if watched.key else result.evidence


def _differing(ours: Any, theirs: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield name, our value and theirs of every leaf that differs."""
    our_leaves, their_leaves = dict(_leaves(ours)), dict(_leaves(theirs))
    for name in dict.fromkeys((*our_leaves, *their_leaves)):
        our_value, their_value = our_leaves.get(name), their_leaves.get(name)
        if our_value != their_value and not _close(our_value, their_value):
            yield name, _text(our_value), _text(their_value)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its path; for members of a list only their presence counts."""
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
        value
        for value in (ours, theirs)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    return len(numbers) == 2 and abs(ours - theirs) <= MARGIN * abs(theirs)  # noqa: PLR2004


def _text(value: Any) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def documents(
    compared: tuple[ComparedCheck, ...], drifted: tuple[LaneDrift, ...]
) -> Mapping[str, list[dict[str, Any]]]:
    """Return both as `verdict.json` contains them."""
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
            for check in compared
        ],
        "drift": [dict(vars(lane_drift)) for lane_drift in drifted],
    }
