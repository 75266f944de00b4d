"""Reads another machine's facts from a file: an inventory, or what `nvidia-smi -q -x` prints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import known_gpus, nvidia_smi
from pytest_vllm_gates.machine.types import Gpu, Machine, NvidiaDriver, ProcessLimits

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 16 * 2**20
HOW = (
    "make one on that machine: vllm-gates inventory --json > machine.json\n"
    "or: nvidia-smi -q -x > machine.xml"
)


def read(path: Path) -> Machine:
    """Return the machine that a file describes; raises `UserError` for a file that is neither."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}\n{HOW}") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path}: larger than {MOST_BYTES // 2**20} MiB, so not a machine\n{HOW}")
    if b"<nvidia_smi_log" in content:
        return _of_document(path, content.decode("utf-8", "replace"))
    try:
        inventory: Any = bounded_read.json(path, unique=True, finite=True, whole=True)
    except FileError as error:
        raise UserError(f"{path}: neither JSON nor nvidia-smi's XML: {error.why}\n{HOW}") from error
    facts = inventory.get("machine") if isinstance(inventory, dict) else None
    if not isinstance(facts, dict):
        raise UserError(f"{path}: not an inventory\n{HOW}")
    try:
        return _of_facts(facts)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: not an inventory of this version: {error}\n{HOW}") from error


def _of_document(path: Path, document: str) -> Machine:
    """Return what the driver's document says; of the rest of the machine it says nothing."""
    driver, gpus = nvidia_smi.read(document)
    if driver.problem:
        raise UserError(f"{path}: not what nvidia-smi -q -x prints: {driver.problem}\n{HOW}")
    gpus = tuple(
        dataclasses.replace(gpu, capability=known_gpus.capability_of(gpu.name)) for gpu in gpus
    )
    return Machine(
        os="unknown",
        python="unknown",
        cpu="unknown",
        cores=0,
        memory_bytes=None,
        gpus=tuple(gpu.name for gpu in gpus),
        devices=gpus,
        driver=driver,
    )


def _of_facts(facts: dict[str, Any]) -> Machine:
    known = {field.name for field in dataclasses.fields(Machine)}
    kept = {name: value for name, value in facts.items() if name in known}
    kept["devices"] = tuple(_record(Gpu, gpu) for gpu in facts.get("devices") or ())
    kept["driver"] = _record(NvidiaDriver, facts.get("driver") or {})
    limits = dict(facts.get("limits") or {})
    open_files = limits.get("open_files")
    limits["open_files"] = tuple(open_files) if open_files else None
    kept["limits"] = _record(ProcessLimits, limits)
    for name in ("gpus", "interfaces", "compatibility"):
        kept[name] = tuple(str(value) for value in facts.get(name) or ())
    kept["topology"] = tuple(tuple(row) for row in facts.get("topology") or ())
    return Machine(**kept)


def _record(kind: type[Any], facts: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in facts.items() if name in known})
