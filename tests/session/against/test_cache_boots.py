"""A server that may not write its caches and does not start has failed, and not the machine."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.lifecycle import killed
from pytest_vllm_gates.lifecycle.killed import KilledBoot
from pytest_vllm_gates.lifecycle.types import CacheState
from pytest_vllm_gates.outcomes import Infrastructure
from pytest_vllm_gates.session.against.cache_boots import CacheBoots

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.lane import Lane

KILLED = CacheState.KILLED
HEALTH_S = 10.0


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
    return CacheBoots(replicas(folder, lanes.load("cpu", folder), launch), _made={KILLED: ()})


def replicas(folder: Path, lane: Lane, launch: Any) -> Any:
    """Return what boots a family on a lane."""
    subject = SimpleNamespace(
        family=families.load("qwen3.5", folder), checkpoint=Checkpoint("none", str(folder))
    )
    return SimpleNamespace(
        folder=folder, run=SimpleNamespace(lane=lane), subject=subject, launch=launch,
        boot=lambda *_, **__: launch, end_the_own=lambda: None, plan=lambda *_, **__: None,
    )  # fmt: skip


def test_start_that_needs_to_write_to_read_only_caches_is_the_servers_failure(
    tmp_path: Path,
) -> None:
    launch = FailedLaunch(f"Permission denied: '{tmp_path / 'caches-read-only'}/locks/a.lock'")
    (boot,) = boots(tmp_path, launch).of(CacheState.READ_ONLY)
    assert boot.failure == launch.explained
    assert launch.stopped


@pytest.mark.parametrize("state", [CacheState.READ_ONLY, CacheState.GARBLED])
def test_full_disk_is_no_failure_of_the_server(state: CacheState, tmp_path: Path) -> None:
    launch = FailedLaunch("No space left on device: 'triton/kernel.so'")
    with pytest.raises(Infrastructure, match="the disk is full"):
        boots(tmp_path, launch).of(state)
    assert launch.stopped


@pytest.mark.parametrize(("eager", "most_s"), [(True, 6.0), (False, 20.0)])
def test_server_that_compiles_has_time_to_begin_on_empty_caches(
    eager: bool, most_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def kill(*arguments: Any) -> KilledBoot:
        *_, limit_s = arguments
        limits.append(limit_s)
        return KilledBoot(limit_s, compiling=False, ended=False, files=0)

    monkeypatch.setattr(killed, "kill_half_way", kill)
    lane = lanes.load("cpu", tmp_path)
    lane = lane.model_copy(update={"serve": {**lane.serve, "enforce_eager": eager}})
    launch = SimpleNamespace(boot=SimpleNamespace(times=SimpleNamespace(health_s=HEALTH_S)))
    CacheBoots(replicas(tmp_path, lane, launch)).killed()
    assert limits == [most_s]  # the own boot of ten seconds may have found warm caches
