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
    """When it is to go out, seconds from the start; None: as soon as a user is free."""


@dataclass(frozen=True)
class Workers:
    """The processes that share the sending of a load."""

    count: int = 0
    """None: one process sends everything."""
    listen: str = ""
    """HOST:PORT where workers of other machines are awaited; '': they are started on this one."""
    secret: str = field(default="", repr=False)
    """What workers of other machines must know."""


ALONE = Workers()


@dataclass(frozen=True)
class RawResponse:
    """How one request went, as seen at the socket. Seconds are from the start of the load."""

    name: str
    intended_s: float
    """When it was to go out. Latencies count from here: a late client hides no queue."""
    sent_s: float | None
    """When its last byte was handed to the kernel; None where it never was."""
    ended_s: float
    """When the last byte came, or the failure."""
    answer: bytes
    """Head and body as they came."""
    arrivals: tuple[tuple[float, int], ...]
    """When the kernel took in what was read, and how many bytes had been read by then in all."""
    lag_s: float = 0.0
    """The longest time that something lay in the kernel before it was read."""
    error: str = ""
    """Why the answer is not whole."""
    begun_s: float | None = None
    """When the client took it up and opened a connection; None where that is not recorded."""

    @property
    def dispatched_s(self) -> float | None:
        """When the client did its part: a connection the server is slow to accept is the server's.

        None where the request never went out.
        """
        return self.sent_s if self.begun_s is None else self.begun_s


@dataclass(frozen=True)
class AnsweredRequest:
    """An answer's tokens with their times, seconds from the start of the load."""

    name: str
    intended_s: float
    ended_s: float
    prompt_tokens: int | None = None
    """As the server counts them; None where it sends no count."""
    tokens: tuple[tuple[float, int], ...] = ()
    """When tokens came, and how many came together: reasoning is output, too."""
    counted_by: str = ""
    """The source of a chunk's token count: `usage`, `token_ids`; `chunks` where there is none."""
    error: str = ""
    """Why the answer is not complete: status and message, or a broken connection."""
    token_ids: int | None = None
    """The tokens whose ids came, however many are counted; None where the server sends no ids."""

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
    """One request of a load, as far as its answer can be held against it. Lengths in tokens.

    None is what was not settled beforehand: a text's tokens, and where an answer ends by itself.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class Schedule:
    """When the requests of a phase were to go out and when they did, seconds from its start."""

    process: str
    """`poisson`, `constant`, or `trace` where the times are those of a trace."""
    rate: float | None
    """Planned requests per second; None for a trace's own."""
    intended_s: tuple[float, ...] = field(repr=False)
    """In order."""
    sent_s: tuple[float | None, ...] = field(repr=False)
    """When the client did its part of each of these; None for what never went out."""


@dataclass(frozen=True)
class Phase:
    """One kind of load, driven once. Seconds are from its start."""

    name: str
    alone: bool
    """Whether no other requests of this run were sent at the same time."""
    users: int | None
    """Requests at once; None where each had its own time."""
    asked: dict[str, ExpectedLengths] = field(repr=False)
    """By the request's name."""
    answers: tuple[AnsweredRequest, ...] = field(repr=False)
    took_s: float
    late_s: tuple[float, ...] = field(repr=False)
    """By how much each request went out later than it should have."""
    before: Load | None
    """The server's figures while idle; None where it has no metrics, or others used it."""
    after: Load | None
    seen: tuple[Load, ...] = field(repr=False)
    """The same while the load was on."""
    hang: Hang | None = None
    schedule: Schedule | None = None
    """None where requests went out as users were free."""


@dataclass(frozen=True)
class Limit:
    """What kept a rate from being served as it has to be."""

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
    """None where the rate was kept."""


@dataclass(frozen=True)
class Probe:
    """One question or ticket sent during the load, with its answer."""

    name: str
    expected: Completion | None
    """The answer without load; None for a ticket."""
    nonce: str | None
    """What its answer, and no other, must contain; None for a question."""
    completion: Completion


@dataclass(frozen=True)
class SoakBlock:
    """A stretch of a soak: the same streams as ever, for a while."""

    at_s: float
    """When it began, seconds from the start of the soak."""
    requests: int
    failed: int
    error: str
    """The error of the first that failed."""
    output_tokens_per_s: float
    memory_bytes: int | None
    """Resident memory of the server's processes at its end; None where it is not this run's."""


@dataclass(frozen=True)
class LoadResult:
    """The result of a load on one server."""

    healthy: Completion
    """The canary's answer before the load."""
    phases: tuple[Phase, ...]
    probes: tuple[Probe, ...]
    rest: RestState | None
    """The server after the load; None where it did not come back."""
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
