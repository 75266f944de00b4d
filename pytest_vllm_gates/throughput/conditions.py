"""Under what conditions figures are measured here.

Recorded figures, and what they hold for: nothing is compared across machines or flags.
"""

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


@dataclass(frozen=True)
class Conditions:
    """Under what figures were measured; figures of other conditions are never compared."""

    machine: Mapping[str, Any]
    model: Mapping[str, Any]
    lane: str
    flags: Mapping[str, Any]
    """How the model is served: flags and environment."""
    work: Mapping[str, Any]
    """What a block consists of."""

    def differences(self, now: Conditions) -> Iterator[str]:
        """Yield what is otherwise now, as people read it."""
        for field in fields(self):
            recorded, found = getattr(self, field.name), getattr(now, field.name)
            if not isinstance(recorded, dict):
                recorded, found = {"": recorded}, {"": found}
            for key in dict.fromkeys([*recorded, *found]):
                before, after = recorded.get(key), found.get(key)
                if before != after:
                    name = f"{field.name}.{key}".rstrip(".")
                    yield f"{name} was {_told(before)} and is {_told(after)}"


@dataclass(frozen=True)
class Recorded:
    """The figures of one boot, as recorded."""

    path: Path
    conditions: Conditions
    versions: Mapping[str, str]
    """Of what was served with: other versions of it are what a baseline is there to judge."""
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Calibration:
    """How much pairs of boots of one and the same lane differ, from an A/A run."""

    conditions: Conditions
    pair_sd: Scatter
    pairs: int


def _told(value: object) -> str:
    return "not given" if value is None else str(value)


GIB = 2**30
DIGITS = 16


def conditions(
    *,
    machine: Machine,
    lane: Lane,
    family: str,
    checkpoint: Checkpoint,
    serve: Mapping[str, Any],
    plan: ThroughputPlan,
) -> Conditions:
    """Return what a figure measured now holds for."""
    return Conditions(
        machine=_hardware(machine, lane),
        model={
            "family": family,
            "checkpoint": checkpoint.name,
            # Wherever a miniature or a folder lies: what counts is what is in it.
            "weights": _shape(checkpoint) or checkpoint.source,
            "revision": checkpoint.revision,
        },
        lane=lane.name,
        flags={**serve, **{f"${name}": value for name, value in lane.env.items()}},
        work=plan.work,
    )


def machine_name(conditions: Conditions) -> str:
    """Return the name of the folder for figures of such a machine."""
    told = conditions.machine
    words = [told["server"]] if "server" in told else [*(told["gpus"] or [told["processor"]])]
    if "server" not in told and not told["gpus"]:
        words.append(f"{told['cores']} cores")
    return re.sub(r"[^a-z0-9.]+", "-", " ".join(words).lower()).strip("-")


def _hardware(machine: Machine, lane: Lane) -> dict[str, Any]:
    """Return what makes machines alike; of a server somewhere else no more than its address."""
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
    """Return what tells folders of weights apart: the configuration, and each file with its size.

    The weights' values make nothing faster or slower, and to read them takes minutes.
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
