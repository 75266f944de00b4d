"""The plan of the load gate: the shipped file, and changes by families and lanes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.catalog.plans import planned_traffic
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_lane_overrides_single_keys() -> None:
    family = {"concurrency": 32, "limits": {"ttft_p95_s": 2.0, "itl_p95_s": 0.05}}
    lane = {"concurrency": 16, "limits": {"itl_p95_s": 0.1}}
    traffic = planned_traffic(family, lane)
    assert traffic.concurrency == 16
    assert (traffic.limits.ttft_p95_s, traffic.limits.itl_p95_s) == (2.0, 0.1)
    assert traffic.requests == planned_traffic().requests


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concurrency": 0}, "load.concurrency"),
        ({"rate": 0.0}, "load.rate"),
        ({"rate": -1.0}, "load.rate"),
        ({"rate": math.inf}, "load.rate"),
        ({"process": "uniform"}, "load.process: Input should be 'poisson' or 'constant'"),
        ({"trace_speed": 0.0}, "load.trace_speed"),
        ({"ramp": {"growth": 1.0}}, "load.ramp.growth"),
        ({"ramp": {"stepps": 3}}, "load.ramp.stepps"),
        ({"limits": {"error_rate": 2.0}}, "load.limits.error_rate"),
        ({"limits": {"ttft_p59_s": 2.0}}, "load.limits.ttft_p59_s"),
        ({"prompt_tokens": [9, 4]}, r"prompt_tokens is \[least, most\]"),
        ({"shared_tokens": 500}, "must leave room in the shortest prompt"),
    ],
)
def test_invalid_traffic_is_refused_with_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planned_traffic(change)


def test_invalid_load_of_a_lane_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "lanes").mkdir()
    text = 'title = "own"\nbase_url = "http://127.0.0.1:1/v1"\n[load]\nconcurency = 4\n'
    (tmp_path / "lanes" / "own.toml").write_text(text)
    with pytest.raises(UserError, match=r"own\.toml.*load\.concurency"):
        lanes.load("own", tmp_path)
