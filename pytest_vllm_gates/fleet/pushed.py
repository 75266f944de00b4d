"""The reports of shards in a store: each run of a shard is a generation of its name."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.files import writing
from pytest_vllm_gates.gates_store.generations import VERDICTS, Shelf
from pytest_vllm_gates.gates_store.objects import Objects
from pytest_vllm_gates.gates_store.schemes import is_store

if TYPE_CHECKING:
    from pytest_vllm_gates.fleet.shards import FleetPlan, Shard

DIGEST_CHARACTERS = 16
"""Characters of the plan's digest in a name, so that plans can share a store."""
PULLED = "pulled"


def push(store: str, plan: FleetPlan, shard: Shard, folder: Path) -> str:
    """Push a shard's report; return its place. Raises `UserError`."""
    shelf = _shelf(Objects(store), plan, shard)
    record, _ = shelf.push(folder)
    return f"{shelf}, generation {record.number}"


def name_of(plan: FleetPlan, shard: Shard) -> str:
    """Return the name of a shard's reports in a store."""
    return f"{plan.digest[:DIGEST_CHARACTERS]}/{shard.name}"


def pull(store: str, plan: FleetPlan, beside: Path | None) -> Path:
    """Return a folder with every report of this plan's shards, a folder each.

    It is in the folder `beside`, where earlier pulls are reused; without `beside`, a temporary
    folder, which is removed when the process ends. Raises `UserError`.
    """
    objects = Objects(store)
    if beside:
        top = beside / PULLED / plan.digest[:DIGEST_CHARACTERS]
    else:
        temporary = tempfile.TemporaryDirectory(prefix="vllm-gates-fleet-")
        atexit.register(temporary.cleanup)
        top = Path(temporary.name)
    with writing(top):
        top.mkdir(parents=True, exist_ok=True)
        for shard in plan.shards:
            shelf = _shelf(objects, plan, shard)
            for record in shelf.all():
                folder = top / f"{shard.name}-{record.number}"
                if not folder.exists():
                    shelf.unpack_whole(record, folder)
    return top


def holds(source: str) -> bool:
    """Return whether a source is a store: its URL, or a folder that shards were pushed to."""
    return is_store(source) or Path(source, VERDICTS).is_dir()


def _shelf(objects: Objects, plan: FleetPlan, shard: Shard) -> Shelf:
    return Shelf(objects, VERDICTS, name_of(plan, shard))
