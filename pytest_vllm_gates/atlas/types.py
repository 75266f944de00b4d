"""The data of an atlas, and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AtlasState(StrEnum):
    """The state of one row in one release."""

    WRONG = "wrong"
    RIGHT = "right"
    NOT_SEEN = "not seen"
    """It was not run, not judged, or the run ended before it: its state is not known."""


class AtlasKind(StrEnum):
    """The subject of a row."""

    BOOT = "boot"
    """The family does not boot."""
    WRONG = "wrong"
    """An answer, a refusal or a start is wrong."""
    DRIFT = "drift"
    """A route, metric, field or message differs from the record: not wrong by itself."""


@dataclass(frozen=True)
class AtlasFinding:
    """One sentence of a test that fails, and its case, which may be empty."""

    case: str
    says: str


@dataclass(frozen=True)
class AtlasTest:
    """One test of a run, all its parameters together."""

    gate: str
    test: str
    """Its name without `test_` and without parameters."""
    outcome: str
    findings: tuple[AtlasFinding, ...] = ()
    """Of a FAIL."""
    complete: bool = False
    """Whether `findings` are all there were."""
    known: tuple[str, ...] = ()
    """The known defects that showed, in words."""
    known_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The cases of each, by the reference."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """The requests, as JSON, by case; not for every case."""
    drift: bool = False
    """Whether it compares with recorded contracts."""


@dataclass(frozen=True)
class AtlasRun:
    """The gates of one family on one release."""

    release: str
    family: str
    created: str
    tool: str
    """The version of this package."""
    gates: str
    """The expression of `-m`."""
    seconds: float
    boot: str = ""
    """Why it does not boot; empty if it boots."""
    tests: tuple[AtlasTest, ...] = ()


@dataclass(frozen=True)
class AtlasRow:
    """One fault, and its state in each release."""

    kind: AtlasKind
    gate: str
    test: str
    families: tuple[str, ...]
    what: str
    reference: str
    """The report, or the request in words; empty if no known defect lists it."""
    states: tuple[tuple[str, AtlasState], ...]
    """Each release, oldest first."""
    listed: bool
    """Whether it is a known defect."""
    case: str = ""
    request: str = ""

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """The pairs of seen releases, next to each other, between which it begins or ends."""
        seen = seen_states(self.states)
        return tuple(
            (before, after)
            for (before, was), (after, is_now) in pairwise(seen)
            if was is not is_now
        )


def seen_states(
    states: Sequence[tuple[str, AtlasState]],
) -> list[tuple[str, AtlasState]]:
    """Return the states without releases that were not seen."""
    return [pair for pair in states if pair[1] is not AtlasState.NOT_SEEN]


def in_order(releases: Sequence[str]) -> list[str]:
    """Return releases, each once, oldest first."""
    return sorted({*releases}, key=Version)
