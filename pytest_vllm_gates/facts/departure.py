"""What became of requests whose clients went away."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NEARLY_ALL = 0.9
"""The share of all tokens from which on answers without an end are taken for complete."""


@dataclass(frozen=True)
class Departure:
    """Several clients left at the same time; requests are counted as the server's metrics do."""

    streamed: bool
    clients: int
    asked_tokens: int
    """Tokens that all answers together would have had."""
    before: int
    """Requests in flight before these came."""
    during: int
    """The most that were seen while all were there."""
    after: int
    """The fewest that were seen since they left."""
    tokens_before: int
    """Tokens the server had generated when they were last seen."""
    tokens_after: int
    """Tokens the server went on to generate."""
    seconds: float
    """From their leaving to the last look."""

    @property
    def arrived(self) -> bool:
        """Whether all were in flight at once before they left."""
        return self.during >= self.before + self.clients

    @property
    def freed(self) -> bool:
        """Whether no more are in flight than before."""
        return self.after <= self.before

    @property
    def ran_out(self) -> bool:
        """Whether the answers may have ended by themselves, so that free slots tell nothing."""
        return self.tokens_before + self.tokens_after >= self.asked_tokens * NEARLY_ALL

    def as_evidence(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return asdict(self)
