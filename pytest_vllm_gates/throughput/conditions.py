"""The conditions of a measurement: figures of other machines or flags are never compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.catalog.plans import Block, Scatter, ThroughputPlan
    from pytest_vllm_gates.machine.types import Machine

GIB = 2**30
DIGITS = 16


@dataclass(frozen=True)
class Conditions:
    """Conditions of a measurement; figures of other conditions are never compared."""

    machine: Mapping[str, Any]
    model: Mapping[str, Any]
    lane: str
    flags: Mapping[str, Any]
    """How the model is served: flags and environment."""
    work: Mapping[str, Any]
    """The contents of a block."""

    def differences(self, now: Conditions) -> Iterator[str]:
        """Yield the conditions that differ now, in words."""
        for field in fields(self):
            recorded, current = getattr(self, field.name), getattr(now, field.name)
            if not isinstance(recorded, dict):
                recorded, current = {"": recorded}, {"": current}
            for key in dict.fromkeys([*recorded, *current]):
                before, after = recorded.get(key), current.get(key)
                if before != after:
                    name = f"{field.name}.{key}".rstrip(".")
                    yield f"{name} was {_as_text(before)} and is {_as_text(after)}"


@dataclass(frozen=True)
class Recorded:
    """The figures of one boot, as recorded."""

    path: Path
    conditions: Conditions
    versions: Mapping[str, str]
    """Versions of the served packages: a baseline exists to compare them."""
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Calibration:
    """How much pairs of boots of the same lane differ, from an A/A run."""

    conditions: Conditions
    pair_sd: Scatter
    pairs: int


def _as_text(value: object) -> str:
    return "not given" if value is None else str(value)


def conditions(
    *,
    machine: Machine,
    lane: Lane,
    family: str,
    checkpoint: Checkpoint,
    serve: Mapping[str, Any],
    plan: ThroughputPlan,
) -> Conditions:
    """Return the conditions of a figure measured now."""
    return Conditions(
        machine=_hardware(machine, lane),
        model={
            "family": family,
            "checkpoint": checkpoint.name,
            # The content of a miniature or a folder counts, not its path.
            "weights": _shape(checkpoint) or checkpoint.source,
            "revision": checkpoint.revision,
        },
        lane=lane.name,
        flags={**serve, **{f"${name}": value for name, value in lane.env.items()}},
        work=plan.work,
    )


def compares(ours: Lane, theirs: Lane) -> bool:
    """Return whether two lanes can be measured in turns: both boot here, or both already run."""
    return (ours.base_url is None) == (theirs.base_url is None)


def machine_name(conditions: Conditions) -> str:
    """Return the name of the folder for a machine's figures."""
    hardware = conditions.machine
    words = (
        [hardware["server"]]
        if "server" in hardware
        else [*(hardware["gpus"] or [hardware["processor"]])]
    )
    if "server" not in hardware and not hardware["gpus"]:
        words.append(f"{hardware['cores']} cores")
    return re.sub(r"[^a-z0-9.]+", "-", " ".join(words).lower()).strip("-")


def _hardware(machine: Machine, lane: Lane) -> dict[str, Any]:
    """Return the hardware that must be equal; for a remote server only its address."""
    if lane.base_url:
        return {"server": urlsplit(lane.base_url).netloc}
    gpus = Counter(machine.gpus)
    memory = machine.memory_bytes
    return {
        "processor": machine.cpu,
        "cores": machine.cores,
        "memory_gib": round(memory / GIB) if memory else None,
        "gpus": [f"{count}x {name}" for name, count in sorted(gpus.items())],
    }


def _shape(checkpoint: Checkpoint) -> str | None:
    """Return a digest of a folder of weights: the configuration, and each file with its size.

    The weights' values do not change the speed, and reading them takes minutes.
    """
    folder = checkpoint.folder
    if folder is None:
        return None
    digest = hashlib.sha256()
    config = folder / "config.json"
    digest.update(config.read_bytes() if config.is_file() else b"")
    files = {path.name: path.stat().st_size for path in sorted(folder.glob("*.safetensors"))}
    digest.update(json.dumps(files).encode())
    return digest.hexdigest()[:DIGITS]
