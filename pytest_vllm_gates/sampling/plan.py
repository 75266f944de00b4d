"""The prompts, odds and budget of the sampling gate: `sampling.toml`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.sampling.checks_odds import AuditOdds

if TYPE_CHECKING:
    from pathlib import Path

FILE = data.FOLDER / "sampling.toml"


class SamplingPlan(toml.Record):
    """The prompts, the error rates of the gate, and its largest number of draws."""

    prompts: tuple[str, ...] = Field(min_length=1)
    thoughts: tuple[str, ...] = Field(min_length=1)
    alarm: float = Field(gt=0, lt=1)
    """The probability that the gate fails a sampler that does as documented, in one run."""
    tests: int = Field(gt=0)
    """The sequential tests that share `alarm`."""
    miss: float = Field(gt=0, lt=1)
    """The probability that a named fault passes."""
    most_draws: int = Field(gt=0)
    """The tokens that one parameter may take before it counts as undecided."""

    @property
    def odds(self) -> AuditOdds:
        """The error rates of each test."""
        return AuditOdds(self.alarm / self.tests, self.miss)


def load(path: Path = FILE) -> SamplingPlan:
    """Read the file; raises `UserError` for a fault in it."""
    return toml.load(path, SamplingPlan)
