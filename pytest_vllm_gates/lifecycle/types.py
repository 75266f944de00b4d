"""The results of stopping a server, and of boots on caches in every state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.client.completion import Completion

BOOTS = {"second_boot": 1, "cache_boots": 5, "held_boot": 1, "rolling_restart": 4}
"""The most boots that each fixture of the gate makes of a family."""
GRACE_S = 30.0
"""Kubernetes' default between SIGTERM and SIGKILL (`terminationGracePeriodSeconds`).

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
"""


class StreamEnd(StrEnum):
    """How a stream ended for its client."""

    WHOLE = "whole"
    ERROR = "error"
    """With an error event, or a broken connection: the client is notified."""
    CUT = "cut"
    """As if it were complete, but without its finish reason or `[DONE]`."""
    HANGS = "hangs"
    """Not at all: nothing more came, and the connection stayed open."""


@dataclass(frozen=True)
class StoppedStream:
    """One stream that was open when the server was stopped."""

    end: StreamEnd
    chunks: int
    """Events that came before its end."""
    said: str
    """The error, or the last event."""
    seconds: float
    """From SIGTERM to its end, or to the end of the watch."""


@dataclass(frozen=True)
class StoppingProbe:
    """A server's answers to a new request, and to a health check after it."""

    at_s: float
    """Since SIGTERM."""
    health: int | None
    """The status; None without a connection."""
    chat: int | None


@dataclass(frozen=True)
class StoppedServer:
    """The observations of a server that was stopped."""

    streams: tuple[StoppedStream, ...]
    probes: tuple[StoppingProbe, ...]
    gone_s: float | None
    """When its process had ended, since SIGTERM; None if not within the grace period."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class CacheState(StrEnum):
    """The state of the caches before a boot."""

    KILLED = "killed"
    """The boot that filled them was killed half-way."""
    GARBLED = "garbled"
    """Files were cut, or contain only zeros."""
    READ_ONLY = "read-only"
    """Nothing can be written to them."""


@dataclass(frozen=True)
class CacheBoot:
    """One boot on such caches."""

    name: str
    failure: str
    """Why it did not serve; empty if it did."""
    answers: tuple[Completion, ...]
    """To the questions that the run's own server got; none if it did not serve."""


@dataclass(frozen=True)
class Held:
    """A server that was suspended: put to sleep, paused, or had its weights read again."""

    name: str
    refused: str
    """Why it does not offer that, in its own words; empty if it does."""
    stuck: str = ""
    """Why it could not be resumed."""
    health: int | None = None
    """The status of `/health` while it was suspended; None without an answer."""
    told_held: bool | None = None
    """The report of its route while it was suspended; None if it reported nothing."""
    told_after: bool | None = None
    """The report of its route afterwards."""
    early: bool = False
    """Whether a request that came while it was suspended was over before it resumed."""
    waited: Completion | None = None
    """The answer to that request; None if nothing was suspended."""
    answers: tuple[Completion, ...] = ()
    """To the questions afterwards."""


@dataclass(frozen=True)
class OpenOverHold:
    """An answer that was open when the server was suspended."""

    name: str
    keeps: bool
    """Whether it was to continue as if nothing had happened."""
    whole: Completion
    """The answer without an interruption."""
    ended: Completion
