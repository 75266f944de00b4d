"""Records of a load: planned requests, raw responses, answers, phases and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vllm_gates.client.completion import Completion
    from pytest_vllm_gates.load.trace import Replay
    from pytest_vllm_gates.server.metrics import Load
    from pytest_vllm_gates.server.watchdog import Hang, RestState


LOOKS_KEPT = 100


@dataclass(frozen=True)
class PlannedRequest:
    """One request of a load."""

    name: str
    path: str
    body: bytes
    at_s: float | None = None
    """When it is to be sent, seconds from the start; None: as soon as a user is free."""


@dataclass(frozen=True)
class Workers:
    """The processes that share the sending of a load."""

    count: int = 0
    """None: one process sends everything."""
    listen: str = ""
    """HOST:PORT at which workers of other machines connect; '': they are started on this one."""
    secret: str = field(default="", repr=False)
    """The secret that workers of other machines must know."""


ALONE = Workers()


@dataclass(frozen=True)
class RawResponse:
    """The course of one request, as seen at the socket. Seconds are from the start of the load."""

    name: str
    intended_s: float
    """When it was to be sent. Latencies count from here: a late client hides no queue."""
    sent_s: float | None
    """When its last byte was handed to the kernel; None if it never was."""
    ended_s: float
    """When the last byte came, or the failure."""
    answer: bytes
    """Head and body as they came."""
    arrivals: tuple[tuple[float, int], ...]
    """When the kernel received the bytes, and how many bytes had been read by then in all."""
    lag_s: float = 0.0
    """The longest time that bytes waited in the kernel before they were read."""
    error: str = ""
    """Why the answer is incomplete."""
    begun_s: float | None = None
    """When the client took it up and opened a connection; None if that is not recorded."""

    @property
    def dispatched_s(self) -> float | None:
        """When the client had done its part: a slow accept of a connection is the server's time.

        None if the request was never sent.
        """
        return self.sent_s if self.begun_s is None else self.begun_s


@dataclass(frozen=True)
class AnsweredRequest:
    """An answer's tokens with their times, seconds from the start of the load."""

    name: str
    intended_s: float
    ended_s: float
    prompt_tokens: int | None = None
    """The server's count; None if it sends no count."""
    tokens: tuple[tuple[float, int], ...] = ()
    """When tokens came, and how many came together: reasoning is output, too."""
    counted_by: str = ""
    """The source of a chunk's token count: `usage`, `token_ids`, else `chunks`."""
    error: str = ""
    """Why the answer is not complete: status and message, or a broken connection."""
    token_ids: int | None = None
    """The tokens whose ids came, however many are counted; None if the server sends no ids."""

    @property
    def output_tokens(self) -> int:
        """How many tokens were generated."""
        return sum(count for _, count in self.tokens)


@dataclass(frozen=True)
class DrivenLoad:
    """A load that was driven, with all raw responses."""

    begun_unix_s: float
    took_s: float
    raws: tuple[RawResponse, ...] = field(repr=False)


@dataclass(frozen=True)
class ExpectedLengths:
    """One request of a load, as far as its answer can be checked. Lengths in tokens.

    None: it was not fixed beforehand, as a text's tokens or the end of a free answer.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class Schedule:
    """When the requests of a phase were scheduled and sent, seconds from its start."""

    process: str
    """`poisson`, `constant`, or `trace` if the times are those of a trace."""
    rate: float | None
    """Planned requests per second; None for a trace's own."""
    intended_s: tuple[float, ...] = field(repr=False)
    """In order."""
    sent_s: tuple[float | None, ...] = field(repr=False)
    """When the client had done its part of each; None for requests that were never sent."""


@dataclass(frozen=True)
class Phase:
    """One kind of load, driven once. Seconds are from its start."""

    name: str
    alone: bool
    """Whether no other requests of this run were sent at the same time."""
    users: int | None
    """Concurrent requests; None if each had its own time."""
    asked: dict[str, ExpectedLengths] = field(repr=False)
    """By the request's name."""
    answers: tuple[AnsweredRequest, ...] = field(repr=False)
    took_s: float
    late_s: tuple[float, ...] = field(repr=False)
    """The delay of each request against its schedule."""
    before: Load | None
    """The server's figures while idle; None if it has no metrics, or others used it."""
    after: Load | None
    seen: tuple[Load, ...] = field(repr=False)
    """The same while the load was on."""
    hang: Hang | None = None
    schedule: Schedule | None = None
    """None if requests were sent as users were free."""


@dataclass(frozen=True)
class Limit:
    """The limit that a rate exceeded."""

    why: str
    clients: bool
    """Whether it is a limit of the client that drives the load, not of the server."""


@dataclass(frozen=True)
class RampStep:
    """One rate of a ramp, offered for a while."""

    rate: float
    """Requests per second that were offered."""
    phase: Phase
    limit: Limit | None
    """None if the rate was kept."""


@dataclass(frozen=True)
class Probe:
    """One question or ticket sent during the load, with its answer."""

    name: str
    expected: Completion | None
    """The answer without load; None for a ticket."""
    nonce: str | None
    """The text that its answer, and no other, must contain; None for a question."""
    completion: Completion


@dataclass(frozen=True)
class SoakBlock:
    """A stretch of a soak: the same streams for a while."""

    at_s: float
    """When it began, seconds from the start of the soak."""
    requests: int
    failed: int
    error: str
    """The error of the first that failed."""
    output_tokens_per_s: float
    memory_bytes: int | None
    """Resident memory of the server's processes at its end; None if it is not this run's."""


@dataclass(frozen=True)
class LoadResult:
    """The result of a load on one server."""

    healthy: Completion
    """The canary's answer before the load."""
    phases: tuple[Phase, ...]
    probes: tuple[Probe, ...]
    rest: RestState | None
    """The server after the load; None if it did not come back."""
    soak: tuple[SoakBlock, ...] = ()
    ramp: tuple[RampStep, ...] = ()
    trace: Replay | None = None

    def looks(self) -> dict[str, list[list[float]]]:
        """Return the server's own figures over each phase, as JSON.

        A look is [seconds since the first one, running, waiting, share of the KV cache in use]; of
        many looks `LOOKS_KEPT` are kept, evenly taken.
        """
        return {
            phase.name: [
                [
                    round(load.at - phase.seen[0].at, 2),
                    load.running,
                    load.waiting,
                    round(load.kv_usage, 4),
                ]
                for load in islice(phase.seen, 0, None, -(-len(phase.seen) // LOOKS_KEPT))
            ]
            for phase in self.phases
            if phase.seen
        }

    def as_evidence(self) -> dict[str, Any]:
        """Return the server's own figures during each phase, as JSON."""
        return {
            phase.name: {
                "took_s": round(phase.took_s, 2),
                "requests": len(phase.answers),
                "running": max((load.running for load in phase.seen), default=None),
                "waiting": max((load.waiting for load in phase.seen), default=None),
                "kv_usage": max((round(load.kv_usage, 4) for load in phase.seen), default=None),
                "preempted": phase.after.preempted - phase.before.preempted
                if phase.after and phase.before
                else None,
                "cached_tokens": phase.after.cached - phase.before.cached
                if phase.after and phase.before
                else None,
            }
            for phase in self.phases
        }
