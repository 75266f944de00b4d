"""Outcomes of a gate's tests, their exceptions, and the cases and findings of checks.

A test raises a subclass of `Undecided` where it can neither pass nor fail. A `Finding` is one
sentence about a `Case`; the case has the request that shows the defect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class Outcome(StrEnum):
    """The outcome of a gate's test. Only PASS counts in favour of a promotion.

    KNOWN is a failure that the family file lists with its reference. WAIVED is a failure that the
    project accepts for a while. Both are listed in the verdict and do not block it.
    """

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    BLOCKED = "BLOCKED"
    MISSING = "MISSING"
    INCONCLUSIVE = "INCONCLUSIVE"
    WAIVED = "WAIVED"
    KNOWN = "KNOWN"
    NOT_APPLICABLE = "N/A"


INFRASTRUCTURE = "infrastructure"
"""The cause of what is `Infrastructure`."""


class Undecided(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by a test that neither passed nor failed; each subclass is one outcome."""

    outcome: ClassVar[Outcome]
    cause: ClassVar[str] = ""
    """The kind of reason; empty for most."""
    breaks: ClassVar[bool] = False
    """Whether the exit status counts it as a breakage."""


class Blocked(Undecided):
    """A requirement of the test is missing: the server did not boot, or has died."""

    outcome = Outcome.BLOCKED
    breaks = True


class Infrastructure(Blocked):
    """Something around the server failed: the network, a gateway, the disk, a port, a package.

    It is not evidence about the server: never a regression, and no incident.
    """

    cause = INFRASTRUCTURE


class MissingGolden(Undecided):
    """The golden to compare with is missing."""

    outcome = Outcome.MISSING
    breaks = True


class MissingBaseline(Undecided):
    """A baseline of this machine to compare with is missing."""

    outcome = Outcome.MISSING


class Inconclusive(Undecided):
    """The measurement cannot decide."""

    outcome = Outcome.INCONCLUSIVE


class Known(Undecided):
    """Every finding is listed in the family file as a known defect."""

    outcome = Outcome.KNOWN


class NotApplicable(Undecided):
    """The family, or the server as it was given, has no such feature."""

    outcome = Outcome.NOT_APPLICABLE


@dataclass(frozen=True)
class TestResult:
    """One test of one gate for one family, as the verdict sees it."""

    __test__: ClassVar[bool] = False

    family: str
    gate: str
    test: str
    outcome: Outcome
    reason: str = ""
    breaks: bool = False
    cause: str = ""
    """`INFRASTRUCTURE`, or empty."""
    duration_s: float = 0.0
    requests: int = 0
    """Sent to the server."""
    evidence: dict[str, Any] = field(default_factory=dict)


# The evidence labels of the family's known defects, which the verdict repeats.
STANDING = "known_defects"
GONE = "known_defects_gone"


@dataclass(frozen=True)
class Case:
    """One thing a check looked at: its name, and the traits that known defects match."""

    name: str
    traits: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] | None = None
    """The body that was sent, to send it again."""


@dataclass(frozen=True)
class Finding:
    """One fault of a case, in one sentence that names field and value."""

    case: Case
    says: str
