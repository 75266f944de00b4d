"""A record of another machine is read whole, or refused by the fact that is none."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from pytest_vllm_gates.machine import inspect, recorded

WHOLE: dict[str, Any] = {"os": "Linux", "devices": []}


def test_an_inventorys_output_is_read_back() -> None:
    here = inspect.inspect()
    printed = json.loads(json.dumps({"machine": dataclasses.asdict(here)}))
    assert recorded.machine_of(printed) == here


def test_a_missing_fact_is_unknown() -> None:
    device = {"memory_bytes": 5, "of_a_later_version": 1}
    machine = recorded.machine_of({**WHOLE, "devices": [device, {"name": "L4"}], "driver": None})
    assert machine.gpus == ("a GPU", "L4")
    assert [gpu.index for gpu in machine.devices] == [0, 1]
    assert machine.devices[0].memory_bytes == 5
    assert machine.driver.version is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"devices": 5}, "^devices: "),
        ({"devices": [5]}, "^devices.0: "),
        ({"devices": [{"name": 5}]}, "^devices.0.name: "),
        ({"devices": [{}, {"capability": "9.x"}]}, "^devices.1.capability: '9.x' is not as 9.0"),
        ({"environment": [1]}, "^environment: "),
        ({"environment": {"A": [1]}}, "^environment.A: "),
        ({"cores": "a"}, "^cores: "),
        ({"limits": 5}, "^limits: "),
        ({"limits": {"open_files": [1]}}, "^limits.open_files.1: "),
        ({"topology": [5]}, "^topology.0: "),
        ({"driver": {"cuda": [12]}}, "^driver.cuda: "),
    ],
)
def test_a_fact_of_another_form_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        recorded.machine_of({**WHOLE, **changes})


@pytest.mark.parametrize("document", [{}, {"machine": 5}, {"machine": {"os": "x"}}])
def test_a_record_without_a_machine_names_its_command(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="vllm-gates inventory --json"):
        recorded.machine_of(document)
