"""Under what conditions figures are measured here."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_vllm_gates.facts.baseline import Conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.catalog.plans import Plan
    from pytest_vllm_gates.machine.types import Machine

GIB = 2**30
DIGITS = 16


def conditions(
    *,
    machine: Machine,
    lane: Lane,
    family: str,
    checkpoint: Checkpoint,
    serve: Mapping[str, Any],
    plan: Plan,
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
