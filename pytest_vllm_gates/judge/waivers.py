"""Which failures are waived, and what became of every waiver in a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_vllm_gates.facts.names import matches
from pytest_vllm_gates.outcomes import Outcome

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Sequence

    from pytest_vllm_gates.catalog.waivers import Waiver
    from pytest_vllm_gates.outcomes import TestResult


class State(StrEnum):
    """What a waiver came to in one run."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"


@dataclass(frozen=True)
class Settled:
    """A waiver that this run had to do with, what it came to, and that as a person reads it."""

    waiver: Waiver
    state: State
    told: str


@dataclass(frozen=True)
class Waivers:
    """The waivers of one lane as of one day, the same from a run's first test to its last."""

    waivers: tuple[Waiver, ...]
    today: datetime.date

    def apply(self, family: str, gate: str, test: str, failure: str) -> tuple[Outcome, str]:
        """Return what a test's failure comes to, with its reason.

        It is WAIVED where a waiver is for it, and stays FAIL where that has expired.
        """
        found = [one for one in self.waivers if _covers(one, family, gate, test)]
        waiver = max(found, key=lambda one: one.until, default=None)
        if waiver is None:
            return Outcome.FAIL, failure
        who, why, until = waiver.who, waiver.why, waiver.until
        if waiver.expired(self.today):
            return Outcome.FAIL, f"its waiver expired on {until} (by {who}: {why}): {failure}"
        return Outcome.WAIVED, f"waived by {who} until {until} ({why}): {failure}"

    def settle(self, results: Sequence[TestResult]) -> tuple[Settled, ...]:
        """Say what became of each waiver in a run; one whose gate did not run is not told."""
        return tuple(
            _settle(one, [each for each in results if _covers_test(one, each)], self.today)
            for one in self.waivers
            if any(_covers(one, each.family, each.gate, None) for each in results)
        )


def of_lane(waivers: Iterable[Waiver], lane: str, today: datetime.date) -> Waivers:
    """Return the waivers that hold on a lane."""
    return Waivers(tuple(one for one in waivers if one.lane in (None, lane)), today)


def _settle(waiver: Waiver, covered: Sequence[TestResult], today: datetime.date) -> Settled:
    outcomes = {one.outcome for one in covered}
    whose = f"{waiver.check} (by {waiver.who}, until {waiver.until}: {waiver.why})"
    if not covered:
        gone = "; no test of this run is called that (mend its check, or delete it)"
    elif outcomes <= {Outcome.PASS, Outcome.KNOWN, Outcome.NOT_APPLICABLE}:
        gone = "; nothing fails there any more (delete it)"
    else:
        gone = ""
    if waiver.expired(today):
        return Settled(waiver, State.EXPIRED, f"waiver, expired: {whose}{gone}")
    if Outcome.WAIVED in outcomes:
        return Settled(waiver, State.USED, f"waived: {whose}")
    return Settled(waiver, State.UNUSED, f"waiver, unused: {whose}{gone}")


def _covers_test(waiver: Waiver, result: TestResult) -> bool:
    return _covers(waiver, result.family, result.gate, result.test)


def _covers(waiver: Waiver, family: str, gate: str, test: str | None) -> bool:
    """Return whether a waiver is for a test, or for tests of that gate where `test` is None."""
    if waiver.gate != gate or not matches(waiver.family, family):
        return False
    return test is None or any(
        matches(waiver.test, name) for name in (test, test.partition("[")[0])
    )
