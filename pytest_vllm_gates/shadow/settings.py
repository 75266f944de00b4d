"""The settings by which pairs are mirrored and judged: the records of `data/shadow.toml`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from pytest_vllm_gates import data
from pytest_vllm_gates.bounded import syntax
from pytest_vllm_gates.catalog import toml

if TYPE_CHECKING:
    from pathlib import Path

FILE = data.FOLDER / "shadow.toml"


class Shares(toml.Record):
    """How the chance of a false REJECT is shared among the tests."""

    absolute: float = Field(gt=0, lt=1)
    compared: float = Field(gt=0, lt=1)
    figures: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not math.isclose(self.absolute + self.compared + self.figures, 1):
            raise ValueError("the shares do not add up to 1")
        return self


class InvariantKind(toml.Record):
    """A kind of broken invariants."""

    says: str
    rate: float | None = Field(default=None, gt=0, lt=0.5)
    """How often a correct server breaks it at most, whatever the model writes; None: not known."""


class ComparedFigure(toml.Record):
    """A figure of each answer, compared by its quantiles."""

    says: str
    quantiles: tuple[float, ...] = Field(min_length=1)
    worse: float = Field(gt=1)
    """The ratio, canary to stable, from which on the canary is worse."""
    besides: float = Field(default=0.0, ge=0)
    """The difference that is allowed in addition. The shadow slows the canary's side: the process
    that sends its requests has a low priority, because clients come first."""
    either: bool = False
    """Whether a lower value is as much of a fault as a higher one."""


class ShadowSettings(toml.Record):
    """The file."""

    routes: tuple[str, ...] = Field(min_length=1)
    stateful: tuple[str, ...]
    headers: tuple[str, ...]
    queries: tuple[str, ...]
    refusals: tuple[str, ...]
    shares: Shares
    kinds: dict[str, InvariantKind] = Field(min_length=1)
    figures: dict[str, ComparedFigure]

    @property
    def hard(self) -> dict[str, float]:
        """The rate of each hard kind."""
        return {name: kind.rate for name, kind in self.kinds.items() if kind.rate is not None}

    def is_stateful(self, body: bytes) -> bool:
        """Return whether a request needs state that only the stable server has."""
        # Bodies are large, and clients wait: most bodies contain none of the names as a key.
        if not any(f'"{name}"'.encode() in body for name in self.stateful):
            return False
        try:
            value = syntax.json_value(body)
        except syntax.BadSyntaxError:
            return False
        return isinstance(value, dict) and any(value.get(name) for name in self.stateful)

    @property
    def quantiles(self) -> int:
        """How many quantiles are compared, of all figures."""
        return sum(len(figure.quantiles) for figure in self.figures.values())


def load(path: Path = FILE) -> ShadowSettings:
    """Read the file; raises `UserError` for a fault in it."""
    return toml.load(path, ShadowSettings)
