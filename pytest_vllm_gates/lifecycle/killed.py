"""Starts a server and kills it half-way through its boot, as a node that goes away does."""

from __future__ import annotations

import secrets
import signal
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.lifecycle import caches
from pytest_vllm_gates.process.guard import descendants, signal_all
from pytest_vllm_gates.process.process import GuardedProcess
from pytest_vllm_gates.server import launch

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.server.launch import LaunchPlan

LOOK_S = 0.05
WRITING_S = 0.3
"""How long a boot continues after it begins to write compiled files, to be in the middle of it."""
GUARDS = 1
"""The inner guard comes first among the processes below the outer one (`process/guard.py`)."""


@dataclass(frozen=True)
class KilledBoot:
    """A boot that was killed on purpose."""

    after_s: float
    compiling: bool
    """Whether it was killed while it wrote what it compiles."""
    ended: bool
    """Whether it had ended by itself before the kill."""
    files: int
    """The files that it left in its caches."""

    def as_evidence(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def kill_half_way(plan: LaunchPlan, folder: Path, most_s: float) -> KilledBoot:
    """Start a plan's server, and SIGKILL all of it once it writes to its caches in `folder`.

    A server that compiles nothing is killed after `most_s` seconds.
    """
    key = secrets.token_urlsafe(24)
    plan.redactor.learn(key)
    argv = launch.command(plan, launch.free_port(), plan.family.name)
    began = time.monotonic()
    process = GuardedProcess(
        argv, env=launch.environment(plan, key), log=plan.folder / "killed.log"
    )
    try:
        writing = False
        while time.monotonic() - began < most_s and process.poll() is None and not writing:
            time.sleep(LOOK_S)
            writing = caches.compiling(folder)
        if writing:
            time.sleep(WRITING_S)
        ended = process.poll() is not None
        after_s = time.monotonic() - began
        signal_all(descendants(process.pid)[GUARDS:], signal.SIGKILL)
    finally:
        process.stop(0.0)
    return KilledBoot(round(after_s, 1), writing, ended, len(caches.files(folder)))
