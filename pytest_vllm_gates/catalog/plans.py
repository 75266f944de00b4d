"""What the throughput gate measures: its plan, from `throughput.toml`, and the blocks it keeps."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.facts.traffic import Between, Positive, Share  # noqa: TC001 - pydantic

FILE = data.FOLDER / "throughput.toml"


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
    def _is_a_table(cls, given: object) -> object:
        if isinstance(given, (int, float)):
            names = ", ".join(cls.model_fields)
            raise ValueError(f"a key for each figure ({names}), no number")  # noqa: TRY004 - pydantic's
        return given

    def of(self, figure: str) -> float:
        """Return that of a figure by its name."""
        found: float = getattr(self, figure)
        return found


class AgainstBaseline(toml.Record):
    """How a boot is held against recorded ones."""

    blocks: int = Field(ge=8)
    margin: float = Field(gt=0, lt=1)
    boot_sd: Scatter
    degrees: int = Field(ge=1)


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


class Plan(toml.Record):
    """Blocks of identical requests, what they are held against, and how surely."""

    concurrency: int = Field(gt=0)
    requests: int = Field(gt=0)
    prompt_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=1)
    baseline: AgainstBaseline
    against: AgainstLane
    odds: Odds
    unfit: Unfit
    host_bound: HostBound | None = None
    """None where the machine's own scatter has been measured."""

    def calibrated(self, pair_sd: Scatter, pairs: int) -> Plan:
        """Return the plan with what so many pairs of boots of one lane have shown."""
        here = {"pair_sd": pair_sd, "degrees": pairs}
        against = self.against.model_copy(update=here)
        return self.model_copy(update={"against": against, "host_bound": None})

    def of_pairs(self, most: int) -> Plan:
        """Return the plan with so many pairs of boots at most."""
        pairs = (min(self.against.pairs[0], most), most)
        return self.model_copy(update={"against": self.against.model_copy(update={"pairs": pairs})})

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

    groups: tuple[Group, ...]
    boots_s: float = 0.0
    """Seconds both boots took."""
    took_s: float = 0.0
    """Seconds of all blocks."""
    side_by_side: bool = True
    """Whether both ran at once, or one after the other for want of memory."""


@dataclass(frozen=True)
class Group:
    """Four blocks in a row: two of each lane, in the order A B B A or B A A B."""

    ours: tuple[Block, Block]
    theirs: tuple[Block, Block]


def planned(*changes: Mapping[str, Any]) -> Plan:
    """Return the shipped plan with changes laid over it, the later one last.

    Raises `ValueError` naming the key for changes that make it no plan.
    """
    return toml.layered(FILE, Plan, "throughput", *changes)
