"""What a check found wrong: a sentence, where it was seen, and the request that shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where a test's evidence tells of the family's known defects, for the verdict to repeat.
STANDING = "known_defects"
GONE = "known_defects_gone"


@dataclass(frozen=True)
class Case:
    """One thing a check looked at: its name, and its traits, by which known defects are told."""

    name: str
    traits: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] | None = None
    """The body that was sent, for whoever wants to send it again."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a case, in one sentence that names field and value."""

    case: Case
    says: str
