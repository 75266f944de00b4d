"""What became of a server that was told to stop, and of boots on caches in every state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.client.completion import Completion

BOOTS = {"second_boot": 1, "cache_boots": 5, "held_boot": 1, "rolling_restart": 4}
"""So many boots each fixture of the gate makes of a family, at most."""
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


class CacheState(StrEnum):
    """What happened to the caches before a boot."""

    KILLED = "killed"
    """The boot that filled them was killed half-way."""
    GARBLED = "garbled"
    """Files were cut, or are full of zeros."""
    READ_ONLY = "read-only"
    """Nothing can be written to them."""


@dataclass(frozen=True)
class CacheBoot:
    """One boot on such caches."""

    name: str
    failure: str
    """Why it did not serve; empty where it did."""
    answers: tuple[Completion, ...]
    """To the questions that the run's own server was asked; none where it did not serve."""


@dataclass(frozen=True)
class Held:
    """A server that was put to sleep, paused, or had its weights read again, and went on."""

    name: str
    refused: str
    """Why it does not offer that, in its own words; empty where it does."""
    stuck: str = ""
    """Why it could not be let go on."""
    health: int | None = None
    """What `/health` answered while it was held; None without an answer."""
    told_held: bool | None = None
    """What its route told while it was held; None where it told nothing."""
    told_after: bool | None = None
    """What it told afterwards."""
    early: bool = False
    """Whether a request that came while it was held was over before it went on."""
    waited: Completion | None = None
    """The answer to that request; None where nothing was held."""
    answers: tuple[Completion, ...] = ()
    """To the questions afterwards."""


@dataclass(frozen=True)
class OpenOverHold:
    """An answer that was under way when the server was held."""

    name: str
    keeps: bool
    """Whether it was to go on as if nothing had been."""
    whole: Completion
    """The answer when nothing comes between."""
    ended: Completion
