"""Reads another machine's facts from a file: an inventory, or what `nvidia-smi -q -x` prints."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pytest_vllm_gates.bounded import read as bounded_read
from pytest_vllm_gates.bounded.errors import FileError
from pytest_vllm_gates.bounded.limits import excerpt
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.machine import known_gpus, nvidia_smi
from pytest_vllm_gates.machine.types import Machine

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = TypeAdapter(Machine)
CAPABILITY = re.compile(r"\d{1,2}\.\d")
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
    if not isinstance(inventory, dict):
        raise UserError(f"{path}: not an inventory\n{HOW}")
    try:
        return machine_of(inventory)
    except ValueError as error:
        raise UserError(f"{path}: not an inventory of this version: {error}\n{HOW}") from error


def _of_document(path: Path, document: str) -> Machine:
    """Return the contents of the driver's document; the rest of the machine is unknown."""
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


def machine_of(document: Mapping[str, Any]) -> Machine:
    """Return the recorded machine; facts that the record lacks are unknown.

    Raises `ValueError` for a document that is not a record of a machine.
    """
    record = document.get("machine", document)
    if not isinstance(record, Mapping) or not {"os", "devices"} <= record.keys():
        raise ValueError("no machine is in it: `vllm-gates inventory --json` writes one")
    told = {name: value for name, value in record.items() if value is not None}
    if isinstance(devices := told.get("devices"), list):
        told["devices"] = [
            {"index": index, "name": "a GPU", **device} if isinstance(device, dict) else device
            for index, device in enumerate(devices)
        ]
    unknown = {"os": "", "python": "", "cpu": "", "cores": 0, "memory_bytes": None}
    try:
        machine = MACHINE.validate_python({**unknown, **told, "gpus": ()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from error
    for index, gpu in enumerate(machine.devices):
        if gpu.capability is not None and not CAPABILITY.fullmatch(gpu.capability):
            raise ValueError(f"devices.{index}.capability: {excerpt(gpu.capability)} is not as 9.0")
    return dataclasses.replace(machine, gpus=tuple(gpu.name for gpu in machine.devices))
