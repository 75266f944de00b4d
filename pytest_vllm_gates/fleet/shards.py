"""A shard: one part of a fleet's plan, which one machine runs; and the plan's file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pytest_vllm_gates import __version__
from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT: Literal["pytest-vllm-gates/fleet-plan"] = "pytest-vllm-gates/fleet-plan"
VERSION: Literal[1] = 1
FILE = "fleet.json"
"""The default name of a plan's file."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """The devices of one server; none on a CPU."""

    gpus: int = 0
    gpu: str = ""
    """The kind that the lane was made for, as its `expects.gpu`; empty for any."""
    gpu_memory_gib: int = 0
    """The least memory of each by the memory plan; 0 without a plan."""

    def __str__(self) -> str:
        """Return them for people; empty without devices."""
        if not self.gpus:
            return ""
        memory = f" with {self.gpu_memory_gib} GiB" if self.gpu_memory_gib else ""
        return f"{self.gpus} {self.gpu or 'GPU'}{'' if self.gpus == 1 else 's'}{memory}"


@dataclasses.dataclass(frozen=True)
class Shard:
    """The work of one machine: some gates of a family on a lane, or one set of features."""

    name: str
    """Lower-case letters, digits and hyphens, as Kubernetes requires (RFC 1123)."""
    family: str
    lane: str
    features: str
    """The value of `--features`; empty for the gates without features."""
    gates: tuple[str, ...]
    seconds: int
    """Its expected duration, boot included."""
    needs: Needs

    @property
    def arguments(self) -> list[str]:
        """The arguments of pytest."""
        features = ["--features", self.features] if self.features else []
        gates = " or ".join(self.gates)
        return ["--model", self.family, "--lane", self.lane, *features, "-m", gates]

    @property
    def place(self) -> tuple[str, str, str]:
        """Its place in the grid: lane, features, family."""
        return self.lane, self.features, self.family


@dataclasses.dataclass(frozen=True)
class FleetPlan:
    """All shards, in the order of their numbers."""

    shards: tuple[Shard, ...]
    suite: str = __version__
    """The version of this package that made the plan, and that must run the shards."""

    @functools.cached_property
    def digest(self) -> str:
        """The plan's identity: SHA-256 of its shards, without their times."""
        shards = [{**dataclasses.asdict(shard), "seconds": 0} for shard in self.shards]
        text = json.dumps([self.suite, shards], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def shard(self, name: str) -> Shard:
        """Return the shard of that name, or of that number from 0; raises `UserError`."""
        by_name = {shard.name: shard for shard in self.shards}
        if name in by_name:
            return by_name[name]
        if name.isdecimal() and int(name) < len(self.shards):
            return self.shards[int(name)]
        last = len(self.shards) - 1
        raise UserError(
            f"no shard {name!r} in this plan: it has the numbers 0 to {last}, and "
            f"{', '.join([*by_name][:5])}{' and others' if len(by_name) > 5 else ''}"  # noqa: PLR2004
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["pytest-vllm-gates/fleet-plan"]
    version: Literal[1]
    suite: str
    digest: str
    shards: tuple[Shard, ...] = Field(min_length=1)


DOCUMENT = TypeAdapter(_Document)


def text(plan: FleetPlan) -> str:
    """Return the text of the plan's file."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "suite": plan.suite,
        "digest": plan.digest,
        "shards": [dataclasses.asdict(shard) for shard in plan.shards],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, plan: FleetPlan) -> None:
    """Write a plan's file; raises `WriteError`."""
    write_whole(path, text(plan))


def read(path: Path) -> FleetPlan:
    """Read a plan's file; raises `UserError` for another file, and for an edited plan."""
    again = "make it again: vllm-gates matrix --plan " + str(path)
    try:
        data = bounded_read.json_object(path, unique=True, finite=True)
        document = DOCUMENT.validate_json(json.dumps(data))
    except FileError as error:
        raise UserError(f"{error}\n{again}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: not a fleet's plan: {where}: {first['msg']}\n{again}") from error
    plan = FleetPlan(document.shards, document.suite)
    if plan.digest != document.digest:
        raise UserError(f"{path}: its shards differ from the planned ones: it was edited\n{again}")
    doubled = _twice([shard.name for shard in plan.shards])
    if doubled:
        raise UserError(f"{path}: two shards have the name {doubled}\n{again}")
    return plan


def _twice(names: Sequence[str]) -> str:
    return next((name for name in names if names.count(name) > 1), "")
