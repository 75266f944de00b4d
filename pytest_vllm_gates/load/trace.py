"""Recorded requests: published traces of arrivals and lengths, and batch files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

BLOCK_TOKENS = 512
"""Tokens that one id of a Mooncake trace represents; the last may have fewer."""


@dataclass(frozen=True)
class Arrival:
    """One request of a trace with its time and lengths, without its content."""

    at_s: float
    """Seconds since the trace's first request."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of its prompt's blocks of `BLOCK_TOKENS`: the same first ids mean the same prefix."""


@dataclass(frozen=True)
class BatchRequest:
    """One request of a batch file, with its content, without its time."""

    name: str
    path: str
    """Such as `/v1/chat/completions`."""
    body: dict[str, Any]


Entry: TypeAlias = Arrival | BatchRequest


@dataclass(frozen=True)
class TraceSelection:
    """The requests of a trace that one load replays, in the file's order."""

    file: str
    format: str
    entries: tuple[Entry, ...] = field(repr=False)
    left_out: int
    """Requests before the last one taken that have no prompt or no answer, as failed ones do."""


@dataclass(frozen=True)
class Replay:
    """How a trace was replayed."""

    file: str
    format: str
    requests: int
    """Requests that were sent, or should have been."""
    left_out: int
    """Requests without a prompt or an answer in the trace."""
    cut: int
    """Requests longer than the server's context, shortened to fit."""
    speed: float | None
    """Seconds of the trace in one of the replay's; None if it has no times."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
