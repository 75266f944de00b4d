"""A machine out of the JSON that `vllm-gates inventory --json` prints on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pytest_vllm_gates.machine.types import Gpu, Machine, NvidiaDriver, ProcessLimits


def machine_of(document: Mapping[str, Any]) -> Machine:
    """Return the recorded machine; what the record does not tell is not known.

    Raises `ValueError` for what is no record of a machine.
    """
    record = document.get("machine", document)
    if not isinstance(record, Mapping) or not {"os", "devices"} <= record.keys():
        raise ValueError("no machine is in it: `vllm-gates inventory --json` writes one")
    devices = [device for device in record["devices"] if isinstance(device, Mapping)]
    unnamed: dict[str, Any] = {"name": "a GPU"}
    gpus = tuple(
        Gpu(**{"index": index, **unnamed, **_known(Gpu, device)})
        for index, device in enumerate(devices)
    )
    limits = _known(ProcessLimits, record.get("limits"))
    if isinstance(files := limits.get("open_files"), list):
        limits["open_files"] = tuple(files)
    whole: dict[str, Any] = {
        "os": "", "python": "", "cpu": "", "cores": 0, "memory_bytes": None,
        **_known(Machine, record),
        "gpus": tuple(gpu.name for gpu in gpus), "devices": gpus,
        "driver": NvidiaDriver(**_known(NvidiaDriver, record.get("driver"))),
        "limits": ProcessLimits(**limits), "topology": (),
    }  # fmt: skip
    for name in ("interfaces", "compatibility"):
        whole[name] = tuple(str(each) for each in record.get(name) or ())
    return Machine(**whole)


def _known(kind: type[Any], record: object) -> dict[str, Any]:
    """Return what a record has of a class's fields."""
    if not isinstance(record, Mapping):
        return {}
    names = {each.name for each in dataclasses.fields(kind)}
    return {name: value for name, value in record.items() if name in names}
