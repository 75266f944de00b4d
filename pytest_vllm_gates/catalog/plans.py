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

# TOML has only lists; a frozen record stores them as tuples.
Between = Annotated[tuple[int, int], Field(strict=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LoadLimits(toml.Record):
    """The limits for a server under its planned load; seconds and shares."""

    error_rate: Share
    ttft_p95_s: Positive
    itl_p95_s: Positive
    slo_attainment: Share
    preemptions: int = Field(ge=0)
    soak_loss: Share
    soak_growth_mib: Positive


class Ramp(toml.Record):
    """How the offered rate is raised until the server does not keep up."""

    start_share: Positive
    """Share of the streams' answered rate to start at; a planned rate is the start instead."""
    growth: float = Field(gt=1, allow_inf_nan=False)
    seconds: Positive
    """How long a step lasts; longer where it would have too few requests."""
    steps: int = Field(gt=0)
    refine: int = Field(ge=0)
    achieved: Share
    """Share of the offered rate; a server that answers less is saturated."""


class Traffic(toml.Record):
    """The planned load: concurrency or rate, length of texts, and limits."""

    concurrency: int = Field(gt=0)
    requests: int = Field(gt=0)
    seconds: Positive
    prompt_tokens: Between
    output_tokens: Between
    shared: Share
    shared_tokens: int = Field(ge=0)
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Requests per second; None: `rate_share` of the rate of `concurrency` streams."""
    rate_share: Positive
    process: Literal["poisson", "constant"]
    trace_speed: Positive
    """Seconds of a trace in one second of the replay."""
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
                f"({self.prompt_tokens[0]} tokens) for its own text"
            )
        return self


def planned_traffic(*changes: Mapping[str, Any]) -> Traffic:
    """Return the shipped traffic with changes applied in order.

    Raises `ValueError` naming the key for invalid changes.
    """
    return toml.layered(LOAD_FILE, Traffic, "load", *changes)


THROUGHPUT_FILE = data.FOLDER / "throughput.toml"


class Scatter(toml.Record):
    """The natural scatter of each figure: the standard deviation of its logarithm.

    The time to the first token varies more between boots than the total throughput.
    """

    output_tokens_per_s: Positive
    ttft_s: Positive
    itl_s: Positive

    @model_validator(mode="before")
    @classmethod
    def _is_a_table(cls, value: object) -> object:
        if isinstance(value, (int, float)):
            names = ", ".join(cls.model_fields)
            raise ValueError(f"expected a key for each figure ({names}), not a number")  # noqa: TRY004 - pydantic's
        return value

    def of(self, figure: str) -> float:
        """Return a figure's scatter by its name."""
        scatter: float = getattr(self, figure)
        return scatter


class AgainstBaseline(toml.Record):
    """How a boot is compared with recorded ones."""

    blocks: int = Field(ge=8)
    margin: float = Field(gt=0, lt=1)
    alarm_above: float = Field(ge=0, lt=1)
    """The loss that the machine alone may cause at another time; less is not a regression."""
    rounds: int = Field(ge=1)
    """Most measurements in all: a server that does not pass is measured again."""
    pause_s: float = Field(ge=0, le=600)
    """Seconds between two rounds."""
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
    """How two lanes are compared."""

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
    """How many blocks compare two running servers."""

    rounds: Between
    """The fewest rounds before the first decision, and the most; each further round decides."""
    groups: int = Field(ge=2)
    """Groups of four blocks in a round."""

    @model_validator(mode="after")
    def _ordered(self) -> BetweenRunning:
        if not 1 <= self.rounds[0] <= self.rounds[1]:
            raise ValueError(f"rounds is [least, most], at least 1: {list(self.rounds)} is not")
        return self


class HostBound(toml.Record):
    """When the processor limits a server's speed, and how much boots differ then."""

    gpu_utilization: Share
    """Below this share of busy time a GPU waits for the host."""
    boot_sd: Scatter


class Odds(toml.Record):
    """The error rates of a verdict, in both directions; shares of all gates."""

    alpha: float = Field(gt=0, lt=0.5)
    """The rate of false alarms: a lane is reported slower and is not."""
    beta: float = Field(gt=0, lt=0.5)
    """The rate of misses: a lane slower by the margin is reported as not slower."""


class Unfit(toml.Record):
    """Limits beyond which a block does not show the server's speed; shares."""

    steal: Share
    others: Share
    client_late: Share
    cached: Share


class ThroughputPlan(toml.Record):
    """Blocks of identical requests, the references to compare with, and the error rates."""

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
    """None if the machine's scatter has been measured."""

    def calibrated(self, pair_sd: Scatter, pairs: int) -> ThroughputPlan:
        """Return the plan with the scatter of this many pairs of boots of one lane."""
        changes = {"pair_sd": pair_sd, "degrees": pairs}
        against = self.against.model_copy(update=changes)
        return self.model_copy(update={"against": against, "host_bound": None})

    def of_pairs(self, most_pairs: int) -> ThroughputPlan:
        """Return the plan with at most this many pairs of boots, or rounds without boots."""

        def at_most(between: Between) -> Between:
            return min(between[0], most_pairs), most_pairs

        against = self.against.model_copy(update={"pairs": at_most(self.against.pairs)})
        running = self.running.model_copy(update={"rounds": at_most(self.running.rounds)})
        return self.model_copy(update={"against": against, "running": running})

    @property
    def work(self) -> dict[str, int]:
        """The work of a block; only blocks of equal work are compared."""
        names = ("concurrency", "requests", "prompt_tokens", "output_tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Block:
    """One run of a block's requests, equal for every block of its name. Times in seconds."""

    name: str
    at_s: float
    """Its start, counted from the first block's."""
    took_s: float
    output_tokens: int
    ttft_s: float
    """The mean over its requests."""
    itl_s: float
    """The mean over its tokens."""
    faults: tuple[str, ...] = ()
    """Why it is not usable: failed requests, or another number of tokens than requested."""
    late_s: float = 0.0
    """The largest delay with which the client sent a request."""
    cached: float | None = None
    """The share of prompt tokens that the server's cache had; None if not reported."""
    steal: float = 0.0
    """The share of the machine's time that its host gave to other machines."""
    others: float | None = None
    """The share that other processes took from the server; None if not known."""
    speed: float | None = None
    """The machine's own speed just before and after, in arbitrary units; None if the server's work
    is not on the machine's processor."""
    server_cpu_s: float | None = None
    """Processor time of the server's processes; None if this run did not start them."""
    context: Mapping[str, float] = field(default_factory=dict)
    """Figures that the server and its GPUs reported meanwhile."""

    @property
    def output_tokens_per_s(self) -> float:
        """Received tokens, divided by the time from the first request to the last token."""
        return self.output_tokens / self.took_s


@dataclass(frozen=True)
class Pair:
    """One boot of each lane, and their alternating blocks."""

    groups: tuple[BlockGroup, ...]
    boots_s: float = 0.0
    """Seconds of both boots."""
    took_s: float = 0.0
    """Seconds of all blocks."""
    side_by_side: bool = True
    """Whether both ran at once; false: one after the other, for lack of memory."""


@dataclass(frozen=True)
class BlockGroup:
    """Four blocks in a row: two of each lane, in the order A B B A or B A A B."""

    ours: tuple[Block, Block]
    theirs: tuple[Block, Block]


def planned_throughput(*changes: Mapping[str, Any]) -> ThroughputPlan:
    """Return the shipped plan with changes applied in order.

    Raises `ValueError` naming the key for invalid changes.
    """
    return toml.layered(THROUGHPUT_FILE, ThroughputPlan, "throughput", *changes)
