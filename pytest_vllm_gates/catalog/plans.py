"""The plans of the throughput gate and of the load gate.

Throughput comes from `throughput.toml`, load from `load.toml`; a family's and a lane's
`[throughput]` and `[load]` change single keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping

LOAD_FILE = data.FOLDER / "load.toml"

# TOML knows lists only; a frozen record keeps them as tuples.
Between = Annotated[tuple[int, int], Field(strict=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LoadLimits(toml.Record):
    """What a server under its planned load has to keep; seconds and shares."""

    error_rate: Share
    ttft_p95_s: Positive
    itl_p95_s: Positive
    slo_attainment: Share
    preemptions: int = Field(ge=0)
    soak_loss: Share
    soak_growth_mib: Positive


class Ramp(toml.Record):
    """How the offered rate is raised until the server does not keep it."""

    start_share: Positive
    """Of the rate at which the streams were answered; where a rate is planned, it begins there."""
    growth: float = Field(gt=1, allow_inf_nan=False)
    seconds: Positive
    """How long a step lasts; longer where it would have too few requests."""
    steps: int = Field(gt=0)
    refine: int = Field(ge=0)
    achieved: Share
    """Of the offered rate; a server that answers less is saturated."""


class Traffic(toml.Record):
    """The planned load: how many at once or how often, how long, and within what limits."""

    concurrency: int = Field(gt=0)
    requests: int = Field(gt=0)
    seconds: Positive
    prompt_tokens: Between
    output_tokens: Between
    shared: Share
    shared_tokens: int = Field(ge=0)
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Requests per second; None: `rate_share` of what `concurrency` streams came to."""
    rate_share: Positive
    process: Literal["poisson", "constant"]
    trace_speed: Positive
    """How many seconds of a trace go by in one of the replay's."""
    ramp: Ramp
    limits: LoadLimits

    @model_validator(mode="after")
    def _ordered(self) -> Traffic:
        for name in ("prompt_tokens", "output_tokens"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} is [least, most], at least 1: {low}, {high} is not")
        if self.shared_tokens >= self.prompt_tokens[0] and self.shared:
            raise ValueError(
                f"shared_tokens ({self.shared_tokens}) must leave room in the shortest prompt "
                f"({self.prompt_tokens[0]} tokens) for what is its own"
            )
        return self


def planned_traffic(*changes: Mapping[str, Any]) -> Traffic:
    """Return the shipped traffic with changes laid over it, the later one last.

    Raises `ValueError` naming the key for changes that make it no traffic.
    """
    return toml.layered(LOAD_FILE, Traffic, "load", *changes)


THROUGHPUT_FILE = data.FOLDER / "throughput.toml"


class Scatter(toml.Record):
    """How much a figure differs by nature, a standard deviation of its logarithm.

    Each has its own: the time to the first token hangs on a boot's moments more than what it
    streams in all.
    """

    output_tokens_per_s: Positive
    ttft_s: Positive
    itl_s: Positive

    @model_validator(mode="before")
    @classmethod
    def _is_a_table(cls, value: object) -> object:
        if isinstance(value, (int, float)):
            names = ", ".join(cls.model_fields)
            raise ValueError(f"a key for each figure ({names}), no number")  # noqa: TRY004 - pydantic's
        return value

    def of(self, figure: str) -> float:
        """Return that of a figure by its name."""
        scatter: float = getattr(self, figure)
        return scatter


class AgainstBaseline(toml.Record):
    """How a boot is held against recorded ones."""

    blocks: int = Field(ge=8)
    margin: float = Field(gt=0, lt=1)
    alarm_above: float = Field(ge=0, lt=1)
    """The share that the machine alone may cost at another time; less is no regression."""
    rounds: int = Field(ge=1)
    """A server that does not pass is measured again, so many times in all."""
    pause_s: float = Field(ge=0, le=600)
    """Between two rounds."""
    boot_sd: Scatter
    degrees: int = Field(ge=1)

    @model_validator(mode="after")
    def _below_the_margin(self) -> AgainstBaseline:
        if self.alarm_above > self.margin:
            raise ValueError(
                f"alarm_above is at most the margin: {self.alarm_above} is above {self.margin}"
            )
        return self


class AgainstLane(toml.Record):
    """How two lanes are held against each other."""

    pairs: Between
    groups: int = Field(ge=4)
    margin: float = Field(gt=0, lt=1)
    pair_sd: Scatter
    degrees: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> AgainstLane:
        if not 1 <= self.pairs[0] <= self.pairs[1]:
            raise ValueError(f"pairs is [least, most], at least 1: {list(self.pairs)} is not")
        return self


class BetweenRunning(toml.Record):
    """How many blocks two servers that run already are compared by."""

    rounds: Between
    """The fewest before the first look, and the most; there is a look after each."""
    groups: int = Field(ge=2)
    """Groups of four blocks in a round."""

    @model_validator(mode="after")
    def _ordered(self) -> BetweenRunning:
        if not 1 <= self.rounds[0] <= self.rounds[1]:
            raise ValueError(f"rounds is [least, most], at least 1: {list(self.rounds)} is not")
        return self


class HostBound(toml.Record):
    """From when on a server's pace is its machine's processor's, and how much boots differ then."""

    gpu_utilization: Share
    """The share of the time below which a GPU waits for what feeds it."""
    boot_sd: Scatter


class Odds(toml.Record):
    """How often a verdict may be wrong, each way; shares of all gates."""

    alpha: float = Field(gt=0, lt=0.5)
    """Slower is said of a lane that is not."""
    beta: float = Field(gt=0, lt=0.5)
    """Not slower is said of a lane that is, by the margin."""


class Unfit(toml.Record):
    """From when on a block is not the server's doing; shares."""

    steal: Share
    others: Share
    client_late: Share
    cached: Share


class ThroughputPlan(toml.Record):
    """Blocks of identical requests, what they are held against, and how surely."""

    concurrency: int = Field(gt=0)
    requests: int = Field(gt=0)
    prompt_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=1)
    baseline: AgainstBaseline
    against: AgainstLane
    running: BetweenRunning
    odds: Odds
    unfit: Unfit
    host_bound: HostBound | None = None
    """None where the machine's own scatter has been measured."""

    def calibrated(self, pair_sd: Scatter, pairs: int) -> ThroughputPlan:
        """Return the plan with what so many pairs of boots of one lane have shown."""
        changes = {"pair_sd": pair_sd, "degrees": pairs}
        against = self.against.model_copy(update=changes)
        return self.model_copy(update={"against": against, "host_bound": None})

    def of_pairs(self, most_pairs: int) -> ThroughputPlan:
        """Return the plan with so many pairs of boots at most, or rounds where nothing boots."""

        def at_most(between: Between) -> Between:
            return min(between[0], most_pairs), most_pairs

        against = self.against.model_copy(update={"pairs": at_most(self.against.pairs)})
        running = self.running.model_copy(update={"rounds": at_most(self.running.rounds)})
        return self.model_copy(update={"against": against, "running": running})

    @property
    def work(self) -> dict[str, int]:
        """What a block consists of; only blocks of the same work are ever compared."""
        names = ("concurrency", "requests", "prompt_tokens", "output_tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Block:
    """The same requests as every block of its name has, driven once. Times in seconds."""

    name: str
    at_s: float
    """When it began, from the first block on."""
    took_s: float
    output_tokens: int
    ttft_s: float
    """The mean over its requests."""
    itl_s: float
    """The mean over its tokens."""
    faults: tuple[str, ...] = ()
    """Why it says nothing: requests that failed, tokens that are not as many as asked."""
    late_s: float = 0.0
    """By how much the client sent the latest request too late."""
    cached: float | None = None
    """The share of its prompts' tokens that the server had in its cache; None where not told."""
    steal: float = 0.0
    """The share of the machine's time that its host gave to others."""
    others: float | None = None
    """The share that other processes took beyond what was left over; None where not known."""
    speed: float | None = None
    """How fast the machine itself was just before and after, in units of its own; None where the
    server's work is not the machine's processor's."""
    server_cpu_s: float | None = None
    """Processor time of the server's processes; None where they are not this run's."""
    context: Mapping[str, float] = field(default_factory=dict)
    """What the server and its GPUs told meanwhile."""

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens that came, by the time from the first request to the last token."""
        return self.output_tokens / self.took_s


@dataclass(frozen=True)
class Pair:
    """One boot of each lane, and the blocks they had in turns."""

    groups: tuple[BlockGroup, ...]
    boots_s: float = 0.0
    """Seconds both boots took."""
    took_s: float = 0.0
    """Seconds of all blocks."""
    side_by_side: bool = True
    """Whether both ran at once, or one after the other for want of memory."""


@dataclass(frozen=True)
class BlockGroup:
    """Four blocks in a row: two of each lane, in the order A B B A or B A A B."""

    ours: tuple[Block, Block]
    theirs: tuple[Block, Block]


def planned_throughput(*changes: Mapping[str, Any]) -> ThroughputPlan:
    """Return the shipped plan with changes laid over it, the later one last.

    Raises `ValueError` naming the key for changes that make it no plan.
    """
    return toml.layered(THROUGHPUT_FILE, ThroughputPlan, "throughput", *changes)
