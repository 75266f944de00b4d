"""A boot is killed once it writes what it compiles, or after its time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.lifecycle import caches
from pytest_vllm_gates.lifecycle.killed import kill_half_way
from pytest_vllm_gates.server.launch import LaunchPlan
from pytest_vllm_gates.server.patience import BootLimits

PROGRAM = Path(__file__).with_name("caching_program.py")


@pytest.mark.parametrize(
    ("way", "most_s", "expected"),
    [
        ("compiles", 60.0, (True, False)),
        ("idles", 2.0, (False, False)),
        ("ends", 60.0, (False, True)),
    ],
)
def test_a_boot_is_killed_half_way(
    way: str, most_s: float, expected: tuple[bool, bool], tmp_path: Path
) -> None:
    folder = tmp_path / "caches"
    lane = lanes.load("cpu", tmp_path).model_copy(
        update={
            "command": (sys.executable, "-I", str(PROGRAM), way),
            "env": caches.variables(folder),
        }
    )
    plan = LaunchPlan(
        family=families.load("qwen3.5", tmp_path),
        lane=lane,
        checkpoint=Checkpoint("none", str(tmp_path)),
        python=None,
        overlay=None,
        folder=tmp_path,
        limits=BootLimits(60.0, 60.0),
    )
    killed = kill_half_way(plan, folder, most_s)
    assert (killed.compiling, killed.ended) == expected
    assert killed.files == len(caches.files(folder))
    assert killed.after_s < 60.0
