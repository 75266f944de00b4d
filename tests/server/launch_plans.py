"""Launch plans of a fake server, for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import stub

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.server import launch
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family

LIMITS = BootLimits(boot_s=20.0, stall_s=10.0)


def lane(*command: str, **changes: Any) -> Lane:
    file = Path("/project/lanes/fake.toml")
    return Lane(name="fake", file=file, title="x", command=command, **changes)


def plan_of(family: Family, folder: Path) -> launch.LaunchPlan:
    return launch.LaunchPlan(
        family=family,
        lane=lane(sys.executable, "-I", "-S", stub.__file__, "{port}"),
        checkpoint=Checkpoint(name="weights", source="org/weights"),
        python=None,
        overlay=None,
        env={},
        folder=folder,
        limits=LIMITS,
    )
