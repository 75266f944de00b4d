"""What became of open streams, new requests and the process after SIGTERM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

GRACE_S = 30.0
"""Kubernetes' default between SIGTERM and SIGKILL (`terminationGracePeriodSeconds`).

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
"""


class StreamEnd(StrEnum):
    """How a stream ended for its client."""

    WHOLE = "whole"
    ERROR = "error"
    """With an event of an error, or a connection that broke: the client learns of it."""
    CUT = "cut"
    """As if it were whole, and without its finish reason or `[DONE]`."""
    HANGS = "hangs"
    """Not at all: nothing came any more, and the connection stayed open."""


@dataclass(frozen=True)
class StoppedStream:
    """One stream that was open when the server was told to stop."""

    end: StreamEnd
    chunks: int
    """Events that came before its end."""
    said: str
    """The error, or what came last."""
    seconds: float
    """From SIGTERM to its end, or to the end of the watch."""


@dataclass(frozen=True)
class StoppingProbe:
    """How a server answered a new request, and a health check after it."""

    at_s: float
    """Since SIGTERM."""
    health: int | None
    """The status; None where there was no connection."""
    chat: int | None


@dataclass(frozen=True)
class StoppedServer:
    """All that was seen of a server that was told to stop."""

    streams: tuple[StoppedStream, ...]
    probes: tuple[StoppingProbe, ...]
    gone_s: float | None
    """When its process had ended, since SIGTERM; None where it had not within the grace period."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)
