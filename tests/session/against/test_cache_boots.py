"""A server that may not write its caches and does not start has failed, and not the machine."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.lifecycle.types import CacheState
from pytest_vllm_gates.outcomes import Infrastructure
from pytest_vllm_gates.session.against.cache_boots import CacheBoots

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class FailedLaunch:
    """A launch whose diagnosis is a full disk."""

    explained: str
    stopped: bool = False
    ok = False

    def explain(self) -> str:
        return self.explained

    def check_surroundings(self) -> None:
        raise Infrastructure("the disk is full")

    def stop(self) -> None:
        self.stopped = True


def boots(folder: Path, launch: FailedLaunch) -> CacheBoots:
    """Return the boots of a server that keeps one file, and fails to start again."""
    kept = folder / "caches" / "vllm" / "graph"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"compiled")
    lane = SimpleNamespace(command=None, start=SimpleNamespace(server=("-m", "vllm")))
    replicas: Any = SimpleNamespace(
        folder=folder, run=SimpleNamespace(lane=lane), boot=lambda *_, **__: launch
    )
    return CacheBoots(replicas, _made={CacheState.KILLED: ()})


def test_start_that_needs_to_write_to_read_only_caches_is_the_servers_failure(
    tmp_path: Path,
) -> None:
    launch = FailedLaunch(f"Permission denied: '{tmp_path / 'caches-read-only'}/locks/a.lock'")
    (boot,) = boots(tmp_path, launch).of(CacheState.READ_ONLY)
    assert boot.failure == launch.explained
    assert launch.stopped


@pytest.mark.parametrize("state", [CacheState.READ_ONLY, CacheState.GARBLED])
def test_full_disk_is_no_failure_of_the_server(state: CacheState, tmp_path: Path) -> None:
    launch = FailedLaunch("No space left on device: '/root/.triton'")
    with pytest.raises(Infrastructure, match="the disk is full"):
        boots(tmp_path, launch).of(state)
    assert launch.stopped
