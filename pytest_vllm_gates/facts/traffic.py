"""What a load gate sends and asks for, from `load.toml`, a family's `[load]` and a lane's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = data.FOLDER / "load.toml"

# TOML knows lists only; a frozen record keeps them as tuples.
Between = Annotated[tuple[int, int], Field(strict=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Limits(toml.Record):
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
    limits: Limits

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


def planned(*changes: Mapping[str, Any]) -> Traffic:
    """Return the shipped traffic with changes laid over it, the later one last.

    Raises `ValueError` naming the key for changes that make it no traffic.
    """
    return toml.layered(FILE, Traffic, "load", *changes)
