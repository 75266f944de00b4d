"""Cores for the servers that tests boot side by side.

vLLM's CPU worker binds itself to the first cores that it may use, so servers of two workers would
share a core and leave the others idle (`vllm/utils/ompmultiprocessing.py`, 0.32.0).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CORES = sorted(os.sched_getaffinity(0))


def of_worker(environ: Mapping[str, str], cores: list[int]) -> list[int]:
    """Return the cores of this one of xdist's workers: all of them where there are too few."""
    workers = int(environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if not 1 < workers <= len(cores):
        return cores
    return cores[int(environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) :: workers]


def keep(*, every: bool) -> None:
    """Run this process, and what it starts from now on, on the worker's cores, or on every core."""
    os.sched_setaffinity(0, CORES if every else of_worker(os.environ, CORES))
