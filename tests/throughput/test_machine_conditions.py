"""Differences between recorded and current conditions are named."""

from __future__ import annotations

from dataclasses import replace

from pytest_vllm_gates.throughput.conditions import Conditions

HERE = Conditions({"gpu": "H100", "cores": 8}, {"name": "m"}, "cuda", {"seed": 1}, {"requests": 9})


def test_same_conditions_have_no_differences() -> None:
    assert list(HERE.differences(replace(HERE, machine={**HERE.machine}))) == []


def test_each_difference_names_both_values() -> None:
    now = Conditions({"gpu": "H200", "memory": 5}, {"name": "m"}, "cpu", {"seed": 1}, {})
    assert list(HERE.differences(now)) == [
        "machine.gpu was H100 and is H200",
        "machine.cores was 8 and is not given",
        "machine.memory was not given and is 5",
        "lane was cuda and is cpu",
        "work.requests was 9 and is not given",
    ]
