"""The environment variables that a process of a lane gets: its server, its renderer, its ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_vllm_gates.environment.environment import CACHE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane

# What would let this process's Python leak into the lane's, and what is no variable of vLLM's.
FOREIGN = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "VIRTUAL_ENV",
    CACHE_VARIABLE,
)  # fmt: skip


def lane_environment(
    lane: Lane,
    python: Path | None,
    overlay: Path | None,
    more: Mapping[str, str],
    under: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a process in a lane: this one's, `under`, the lane's and `more`."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    env |= {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"} | dict(under or {})
    if python:
        env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", os.defpath)])
    env |= lane.env | dict(more)
    if overlay:
        paths = [str(overlay), lane.env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return env
