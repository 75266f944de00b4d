"""What boots of a fake server are planned with, for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fakeserver

from pytest_vllm_gates.drive import launch
from pytest_vllm_gates.facts.checkpoint import Checkpoint
from pytest_vllm_gates.facts.lane import Lane

if TYPE_CHECKING:
    from pytest_vllm_gates.facts.family import Family

LIMITS = launch.Limits(boot_s=20.0, stall_s=10.0)


def lane(*command: str, **changes: Any) -> Lane:
    file = Path("/project/lanes/fake.toml")
    return Lane(name="fake", file=file, title="x", command=command, **changes)


def plan_of(family: Family, folder: Path) -> launch.Plan:
    return launch.Plan(
        family=family,
        lane=lane(sys.executable, "-I", "-S", fakeserver.__file__, "{port}"),
        checkpoint=Checkpoint(name="weights", source="org/weights"),
        python=None,
        overlay=None,
        env={},
        folder=folder,
        limits=LIMITS,
    )
