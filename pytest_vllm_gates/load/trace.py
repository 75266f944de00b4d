"""Requests as somebody recorded them: published traces of arrivals and lengths, and batch files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

BLOCK_TOKENS = 512
"""Tokens that one id of a Mooncake trace stands for; the last may stand for fewer."""


@dataclass(frozen=True)
class Arrival:
    """One request of a trace that tells when it came and how long it was, not what it said."""

    at_s: float
    """Seconds since the trace's first request."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of its prompt's blocks of `BLOCK_TOKENS`: who begins with the same ids begins alike."""


@dataclass(frozen=True)
class BatchRequest:
    """One request of a batch file: it tells what was said, and not when."""

    name: str
    path: str
    """Such as `/v1/chat/completions`."""
    body: dict[str, Any]


Entry: TypeAlias = Arrival | BatchRequest


@dataclass(frozen=True)
class TraceSelection:
    """What of a trace goes into one load, in the file's order."""

    file: str
    format: str
    entries: tuple[Entry, ...] = field(repr=False)
    left_out: int
    """Requests before the last one taken that have no prompt or no answer, as failed ones do."""


@dataclass(frozen=True)
class Replay:
    """What was made of a trace."""

    file: str
    format: str
    requests: int
    """That went out, or should have."""
    left_out: int
    """Without prompt or answer in the trace."""
    cut: int
    """Longer than the server's context, and shortened to fit."""
    speed: float | None
    """Seconds of the trace in one of the replay's; None where it tells no times."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
