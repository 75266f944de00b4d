"""Waivers: failures that may pass for a while, each with its owner, its reason and its last day.

They are listed in a `waivers.toml` beside the project's `pyproject.toml`; none are shipped. A run
applies them to failures and reports the state of every waiver.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.catalog import family as families, lane as lanes, outside, toml
from pytest_vllm_gates.catalog.toml import matches, nearest
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_vllm_gates.outcomes import TestResult

NAME = "waivers.toml"
MOST_DAYS = 90
ANY = "*"
SEPARATOR = ": "
PARTS = (2, 3)
Stripped = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1),
    AfterValidator(toml.sentence),
]


class Waiver(toml.Record):
    """One waiver: valid up to the end of the day `until` (UTC), on `lane` or on every lane.

    `check` is `family: gate: test` as in the verdict, or `family: gate` for all tests of the gate.
    In family and test `*` matches any text; a test without its `[...]` means all of its cases.
    """

    check: toml.Name
    who: Stripped
    why: Stripped
    until: datetime.date
    lane: toml.Name | None = None

    @field_validator("check")
    @classmethod
    def _names_one_gate(cls, check: str) -> str:
        parts = check.split(SEPARATOR, 2)
        if len(parts) not in PARTS or not all(part and part == part.strip() for part in parts):
            raise ValueError("a check is 'family: gate: test' or 'family: gate'")
        if not parts[1].isidentifier():
            raise ValueError("the gate is one name, with no * in it: a waiver is for one gate")
        return check

    @property
    def family(self) -> str:
        """The family it names, perhaps with `*`."""
        return self.check.split(SEPARATOR, 2)[0]

    @property
    def gate(self) -> str:
        """The gate it is for."""
        return self.check.split(SEPARATOR, 2)[1]

    @property
    def test(self) -> str:
        """The test it names, perhaps with `*`; `*` where it is for all of the gate's."""
        return [*self.check.split(SEPARATOR, 2), ANY][2]

    def expired(self, today: datetime.date) -> bool:
        """Return whether it has ended."""
        return today > self.until


class _WaiverFile(toml.Record):
    waiver: tuple[Waiver, ...] = Field(default=())


def today() -> datetime.date:
    """Return the current day in UTC, the same on every machine."""
    return datetime.datetime.now(datetime.UTC).date()


def load_all(project: Path, gates: Iterable[str], day: datetime.date) -> tuple[Waiver, ...]:
    """Read the project's waivers as of `day`; `gates` are the shipped ones.

    Raises `UserError` for a fault in the file, an unknown family, gate or lane, and an end
    further away than a waiver may last.
    """
    path = project / NAME
    if not path.exists():
        return ()
    waivers = outside.load(path, _WaiverFile).waiver
    text, _ = outside.read(path)
    family_names = [family.name for family in families.load_all(project)] if waivers else []
    own_lanes = [*lanes.files(project), lanes.ATTACHED]
    for number, waiver in enumerate(waivers):
        faults = {
            "until": _too_far(waiver, day),
            "check": _no_family(waiver, family_names) or _no_gate(waiver, project, [*gates]),
            "lane": _unknown("lane", waiver.lane, own_lanes) if waiver.lane is not None else None,
        }
        for key, fault in faults.items():
            if fault:
                raise UserError(f"{toml.place(path, text, ('waiver', number, key))}: {fault}")
    return waivers


def _too_far(waiver: Waiver, day: datetime.date) -> str | None:
    last = day + datetime.timedelta(days=MOST_DAYS)
    if waiver.until <= last:
        return None
    return (
        f"a waiver lasts at most {MOST_DAYS} days, and {waiver.until} is "
        f"{(waiver.until - day).days} days away: until = {last} is the last day it may name today"
    )


def _no_family(waiver: Waiver, family_names: Iterable[str]) -> str | None:
    if any(matches(waiver.family, name) for name in family_names):
        return None
    return _unknown("family", waiver.family, family_names)


def _no_gate(waiver: Waiver, project: Path, gates: Iterable[str]) -> str | None:
    # A project's own gate need not be in this run.
    if next(project.rglob(f"test_{waiver.gate}.py"), None):
        return None
    return _unknown("gate", waiver.gate, gates)


def _unknown(kind: str, name: str, known_names: Iterable[str]) -> str | None:
    known_names = sorted(known_names)
    if name in known_names:
        return None
    guess = nearest(name, known_names)
    hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(known_names)}"
    return f"unknown {kind} {excerpt(name)}; {hint}"


class WaiverState(StrEnum):
    """The result of a waiver in one run."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"


@dataclass(frozen=True)
class SettledWaiver:
    """A waiver that this run applied or checked, its result, and a sentence about it."""

    waiver: Waiver
    state: WaiverState
    told: str


@dataclass(frozen=True)
class Waivers:
    """The waivers of one lane on one day, fixed from a run's first test to its last."""

    waivers: tuple[Waiver, ...]
    today: datetime.date

    def apply(self, family: str, gate: str, test: str, failure: str) -> tuple[Outcome, str]:
        """Return the outcome of a test's failure, with its reason.

        It is WAIVED by a matching waiver, and stays FAIL if that has expired.
        """
        covering = [
            candidate for candidate in self.waivers if _covers(candidate, family, gate, test)
        ]
        waiver = max(covering, key=lambda candidate: candidate.until, default=None)
        if waiver is None:
            return Outcome.FAIL, failure
        who, why, until = waiver.who, waiver.why, waiver.until
        if waiver.expired(self.today):
            return Outcome.FAIL, f"its waiver expired on {until} (by {who}: {why}): {failure}"
        return Outcome.WAIVED, f"waived by {who} until {until} ({why}): {failure}"

    def settle(self, results: Sequence[TestResult]) -> tuple[SettledWaiver, ...]:
        """Return the result of each waiver in a run, without those whose gate did not run."""
        return tuple(
            _settle(
                waiver,
                [test_result for test_result in results if _covers_test(waiver, test_result)],
                self.today,
            )
            for waiver in self.waivers
            if any(
                _covers(waiver, test_result.family, test_result.gate, None)
                for test_result in results
            )
        )


def of_lane(waivers: Iterable[Waiver], lane: str, today: datetime.date) -> Waivers:
    """Return the waivers of a lane."""
    return Waivers(tuple(waiver for waiver in waivers if waiver.lane in (None, lane)), today)


def _settle(waiver: Waiver, covered: Sequence[TestResult], today: datetime.date) -> SettledWaiver:
    outcomes = {test_result.outcome for test_result in covered}
    whose = f"{waiver.check} (by {waiver.who}, until {waiver.until}: {waiver.why})"
    if not covered:
        advice = "; no test of this run has that name (mend its check, or delete it)"
    elif outcomes <= {Outcome.PASS, Outcome.KNOWN, Outcome.NOT_APPLICABLE}:
        advice = "; nothing fails there any more (delete it)"
    else:
        advice = ""
    if waiver.expired(today):
        return SettledWaiver(waiver, WaiverState.EXPIRED, f"waiver, expired: {whose}{advice}")
    if Outcome.WAIVED in outcomes:
        return SettledWaiver(waiver, WaiverState.USED, f"waived: {whose}")
    return SettledWaiver(waiver, WaiverState.UNUSED, f"waiver, unused: {whose}{advice}")


def _covers_test(waiver: Waiver, result: TestResult) -> bool:
    return _covers(waiver, result.family, result.gate, result.test)


def _covers(waiver: Waiver, family: str, gate: str, test: str | None) -> bool:
    """Return whether a waiver covers a test, or any test of that gate if `test` is None."""
    if waiver.gate != gate or not matches(waiver.family, family):
        return False
    return test is None or any(
        matches(waiver.test, name) for name in (test, test.partition("[")[0])
    )
