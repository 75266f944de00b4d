"""What a server is busy with at a moment, as its metrics tell it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Load:
    """Counts are since the server began, but for what runs and waits now."""

    at: float
    """When it was looked at, on the monotonic clock, in seconds."""
    running: int
    waiting: int
    generated: int
    """Tokens generated."""
    read: int
    """Tokens of prompts taken in."""
    preempted: int
    """Requests put off because the KV cache was full."""
    kv_usage: float
    """The share of the KV cache in use, 0 to 1, summed over the engines."""
    cached: int = 0
    """Tokens of prompts that were found in the prefix cache."""

    @property
    def in_flight(self) -> int:
        """How many requests run or wait."""
        return self.running + self.waiting

    @property
    def progress(self) -> tuple[float, ...]:
        """What changes whenever the server gets anywhere with its requests."""
        return (self.running, self.waiting, self.generated, self.read, self.kv_usage)

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
