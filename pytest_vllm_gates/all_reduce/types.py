"""An all-reduce between the ranks of a lane: what is tried, and what each rank came to."""

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
# Places of ranks that this process is not the one to fill.
ELSEWHERE = ("ray", "external_launcher")

Size = Annotated[int, Field(gt=0)]


class AllReducePlan(toml.Record):
    """What is summed, and how long that may take."""

    sizes_kib: tuple[Size, ...] = Field(min_length=1)
    rounds: int = Field(gt=0)
    stall_s: float = Field(gt=0)
    limit_s: float = Field(gt=0)
    told: tuple[Pattern, ...]
    """What a log of NCCL's tells of the links, by name."""

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
    """Where a rank had come to, and the second of the machine's monotonic clock it did."""

    number: int
    name: str
    at_s: float


@dataclass(frozen=True)
class WrongElement:
    """The first element of a sum that is not what it has to be."""

    at: int
    got: float
    wanted: float
    unit: float
    """What rank 0 adds there; rank 1 adds twice as much, and so on."""
    count: int
    """Of the elements that are wrong."""


@dataclass(frozen=True)
class RankSum:
    """One size on one rank: bytes of the tensor, seconds of one all-reduce, what was wrong."""

    bytes: int
    round_s: float
    wrong: WrongElement | None = None


@dataclass(frozen=True)
class Rank:
    """What one rank wrote down of itself."""

    number: int
    steps: tuple[RankStep, ...] = ()
    summed: tuple[RankSum, ...] = ()
    failed: str = ""
    """The exception it ended with, in one line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Its device, versions, and the addresses it talked over."""
    doing: str = ""
    """What the kernel says of its process, where it was waited for in vain."""

    @property
    def done(self) -> bool:
        """Whether it came to the end."""
        return bool(self.steps) and self.steps[-1].name == DONE


@dataclass(frozen=True)
class Ranks:
    """What an all-reduce between ranks came to."""

    backend: str
    world: int
    ranks: tuple[Rank, ...]
    """Those of this machine."""
    log: Path
    command: tuple[str, ...]
    took_s: float
    status: int | None
    """The exit status; None where it had to be ended."""
    silent_s: float = 0.0
    """Seconds without a step when it was ended."""
    ended_s: float = 0.0
    """The machine's monotonic clock when it ended or was ended."""
    ended: tuple[tuple[int, int], ...] = ()
    """The rank that ended first of itself, with its exit status (negative: the signal)."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What the log tells of the links."""


def in_words(size: int) -> str:
    """Return a size in bytes in words: 8 KiB, 16 MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def load() -> AllReducePlan:
    """Return the plan that ships."""
    return toml.load(FILE, AllReducePlan)


def backend(device: str | None) -> str:
    """Return what ranks on such a device talk by; RCCL goes by NCCL's name in torch."""
    return "gloo" if device == "cpu" else "nccl"


def rank_count(serve: Mapping[str, Any]) -> int:
    """Return over how many ranks a server with these flags spreads a model.

    What makes no sense counts as one: it is preflight's to name.
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
    found = serve.get(name, default)
    return found if isinstance(found, int) and found >= least else default
