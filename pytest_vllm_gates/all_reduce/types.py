"""Records of an all-reduce between the ranks of a lane: the plan, and each rank's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.server.startup_check import Pattern

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = data.FOLDER / "all_reduce.toml"
KIB, MIB = 2**10, 2**20
DONE = "done"
# Placeholders of ranks that this process does not fill in.
ELSEWHERE = ("ray", "external_launcher")

Size = Annotated[int, Field(gt=0)]


class AllReducePlan(toml.Record):
    """The tensors to sum, and the time limits."""

    sizes_kib: tuple[Size, ...] = Field(min_length=1)
    rounds: int = Field(gt=0)
    stall_s: float = Field(gt=0)
    limit_s: float = Field(gt=0)
    told: tuple[Pattern, ...]
    """Patterns of NCCL's log for the links, by name."""

    def within(self, limit_s: float, stall_s: float) -> AllReducePlan:
        """Return the plan with limits that are no longer than these."""
        shorter = {
            "limit_s": min(self.limit_s, limit_s),
            "stall_s": min(self.stall_s, stall_s),
        }
        return self.model_copy(update=shorter)


@dataclass(frozen=True)
class Nodes:
    """The machines that the ranks are spread over, as vLLM's flags name them."""

    count: int = 1
    rank: int = 0
    address: str = "127.0.0.1"
    port: int = 29501


@dataclass(frozen=True)
class RankStep:
    """A step a rank began, and the time by the machine's monotonic clock."""

    number: int
    name: str
    at_s: float


@dataclass(frozen=True)
class WrongElement:
    """The first wrong element of a sum."""

    at: int
    got: float
    wanted: float
    unit: float
    """Rank 0's value there; rank 1 adds twice as much, and so on."""
    count: int
    """How many elements are wrong."""


@dataclass(frozen=True)
class RankSum:
    """One size on one rank: bytes of the tensor, seconds of one all-reduce, the fault."""

    bytes: int
    round_s: float
    wrong: WrongElement | None = None


@dataclass(frozen=True)
class Rank:
    """The record of one rank."""

    number: int
    steps: tuple[RankStep, ...] = ()
    summed: tuple[RankSum, ...] = ()
    failed: str = ""
    """The exception it ended with, in one line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Its device, versions, and the addresses it talked over."""
    doing: str = ""
    """The kernel's state of its process, for a hang."""

    @property
    def done(self) -> bool:
        """Whether it came to the end."""
        return bool(self.steps) and self.steps[-1].name == DONE


@dataclass(frozen=True)
class Ranks:
    """The result of an all-reduce between ranks."""

    backend: str
    world: int
    ranks: tuple[Rank, ...]
    """Those of this machine."""
    log: Path
    command: tuple[str, ...]
    took_s: float
    status: int | None
    """The exit status; None if it had to be ended."""
    silent_s: float = 0.0
    """Seconds without a step when it was ended."""
    ended_s: float = 0.0
    """The machine's monotonic clock when it ended or was ended."""
    ended: tuple[tuple[int, int], ...] = ()
    """The rank that ended first, with its exit status (negative: the signal)."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The links by the log."""


def in_words(size: int) -> str:
    """Return a size in bytes in words: 8 KiB, 16 MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def load() -> AllReducePlan:
    """Return the plan that ships."""
    return toml.load(FILE, AllReducePlan)


def backend(device: str | None) -> str:
    """Return the backend for ranks on such a device; RCCL has NCCL's name in torch."""
    return "gloo" if device == "cpu" else "nccl"


def rank_count(serve: Mapping[str, Any]) -> int:
    """Return over how many ranks a server with these flags spreads a model.

    An invalid value counts as one; preflight reports it.
    """
    return _count(serve, "tensor_parallel_size") * _count(serve, "pipeline_parallel_size")


def nodes(serve: Mapping[str, Any]) -> Nodes:
    """Return the machines that a server with these flags spans."""
    default = Nodes()
    return Nodes(
        _count(serve, "nnodes"),
        _count(serve, "node_rank", default.rank, least=0),
        str(serve.get("master_addr", default.address)),
        _count(serve, "master_port", default.port),
    )


def _count(serve: Mapping[str, Any], name: str, default: int = 1, least: int = 1) -> int:
    value = serve.get(name, default)
    return value if isinstance(value, int) and value >= least else default
