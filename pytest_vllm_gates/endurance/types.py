"""The plan of an endurance run, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.catalog.plans import Positive, Share

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = data.FOLDER / "endurance.toml"
CANARY, AGENT, LEFT = "canary", "agent", "left"
LOST = "lost"
"""A canary without an answer: it does not count as a different answer."""
THOUGHT = "thought"
"""An answer that ended in its thinking, before the grammar applies: it has no nonce."""


class EndurancePlan(toml.Record):
    """The file `endurance.toml`."""

    canary_every: int = Field(ge=2)
    leave_every: int = Field(ge=2)
    leave_tokens: int = Field(gt=0)
    context_share: Share
    tool_result: str = Field(min_length=1)
    block_requests: int = Field(gt=0)
    growth_mib: Positive
    handles: int = Field(gt=0)
    loss: Share
    tolerated: Share
    """The share of canaries that a correct server may answer differently."""
    odds: Share
    """The odds of a correct server at which the run ends early."""


def load() -> EndurancePlan:
    """Read the file that ships."""
    return toml.load(FILE, EndurancePlan)


@dataclass(frozen=True)
class EnduredRequest:
    """One request of the run, in the order in which they were sent."""

    number: int
    """From 1 on."""
    kind: str
    """`CANARY`, `AGENT`, `LEFT`, `LOST` or `THOUGHT`."""
    fault: str = ""
    """The fault of its answer, as a sentence; empty without one."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The request that was sent, if its answer has a fault."""


@dataclass(frozen=True)
class EnduranceBlock:
    """The server's figures after so many requests."""

    at_s: float
    requests: int
    answered_tokens: int
    """Tokens of the answers since the block before."""
    took_s: float
    memory_bytes: int | None
    """Resident memory of the server's processes; None if it was not measured."""
    handles: int | None
    """Files and sockets that the processes have open."""
    preempted: int | None = None
    """Requests that were restarted (preempted) since the server started."""

    @property
    def tokens_per_s(self) -> float:
        """The rate of the block."""
        return self.answered_tokens / self.took_s


@dataclass(frozen=True)
class EnduranceResult:
    """The whole run."""

    requests: tuple[EnduredRequest, ...]
    blocks: tuple[EnduranceBlock, ...]
    took_s: float
    ended_early: str = ""
    """Why it was ended early; empty if it ran for its planned length."""
    least_odds: float = 1.0
    """The least odds of a correct server at any time of the run. Correct answers after the end do
    not raise them again (Ville's inequality)."""

    def of(self, kind: str) -> tuple[EnduredRequest, ...]:
        """Return the requests of a kind."""
        return tuple(each for each in self.requests if each.kind == kind)

    def as_evidence(self) -> dict[str, Any]:
        """Return counts and figures as JSON."""
        return {
            "requests": len(self.requests),
            "canaries": len(self.of(CANARY)),
            "agents": len(self.of(AGENT)),
            "left": len(self.of(LEFT)),
            "lost": len(self.of(LOST)),
            "thought": len(self.of(THOUGHT)),
            "took_s": round(self.took_s, 1),
            "ended_early": self.ended_early,
            "tokens_per_s": [round(block.tokens_per_s, 1) for block in self.blocks],
            "memory_bytes": [block.memory_bytes for block in self.blocks],
            "handles": [block.handles for block in self.blocks],
            "preempted": [block.preempted for block in self.blocks],
        }
