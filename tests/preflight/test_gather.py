"""What is gathered before a boot, and whose environment and machine it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machines import recorded

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.checkpoints import files as checkpoints_files, miniatures
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.preflight import gather as preflight_gather

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.preflight.types import Situation

OURS = Checkpoint("miniature", str(miniatures.path("qwen3.5")))


def gather(qwen: Family, lane: dict[str, Any], **given: Any) -> Situation:
    made = Lane(name="x", file=Path("/x"), title="t", **lane)
    return preflight_gather.gather(qwen, OURS, made, Environment(None), recorded("h100x8"), **given)


def test_a_server_of_our_own_inherits_our_environment(
    qwen: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    lane = {"python": "/py", "env": {"A": "lane"}}
    situation = gather(qwen, lane, env={"CUDA_VISIBLE_DEVICES": "2"})
    assert situation.machine is not None and situation.own_limits
    assert situation.environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert situation.environment["A"] == "lane"
    assert situation.model.config["architectures"] == ["Qwen3_5ForCausalLM"]
    assert not situation.parsers_known


def test_a_container_gets_what_it_is_given(qwen: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HF_HOME", "/hf")
    command = ("/usr/bin/docker", "run", "--env=HF_HOME", "-e", "VLLM_X=1", "--gpus=all", "vllm")
    situation = gather(qwen, {"command": command})
    assert situation.machine is not None and not situation.own_limits
    assert situation.environment == {"HF_HOME": "/hf", "VLLM_X": "1"}


def test_a_server_started_elsewhere_is_on_another_machine(qwen: Family) -> None:
    assert gather(qwen, {"command": ("ssh", "host", "vllm")}).machine is None
    assert gather(qwen, {"base_url": "http://h/v1"}).machine is None


@pytest.mark.parametrize(
    ("lane", "alike"),
    [
        ({"python": "/py", "env": {"HF_HUB_DISABLE_TELEMETRY": "1"}}, True),
        ({"python": "/py", "env": {"HF_ENDPOINT": "https://mirror.example"}}, False),
        ({"command": ("docker", "run")}, False),
    ],
)
def test_a_lane_may_fetch_checkpoints_in_a_way_of_its_own(
    qwen: Family, lane: dict[str, Any], alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def read(_: Checkpoint, *, reads_alike: bool) -> Model:
        asked.append(reads_alike)
        return Model("x")

    monkeypatch.setattr(checkpoints_files, "read", read)
    gather(qwen, lane)
    assert asked == [alike]


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("", None), ("spark-1", None)],
)
def test_an_address_is_held_against_the_machines_own(address: str, own: bool | None) -> None:
    if address == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    assert preflight_gather._own_address(address) is own


def test_a_library_that_a_variable_names_is_looked_for(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    named = {"VLLM_NCCL_SO_PATH": str(library), "OTHER": "/nowhere"}
    assert preflight_gather._missing_files(named) == {"VLLM_NCCL_SO_PATH": str(library)}
    library.touch()
    assert preflight_gather._missing_files(named) == {}
