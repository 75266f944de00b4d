"""The input of preflight: which machine and which environment a lane has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machines import recorded

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.checkpoints import files as checkpoint_files, miniatures
from pytest_vllm_gates.checkpoints.files import Model
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.preflight import gather as preflight_gather

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family
    from pytest_vllm_gates.preflight.types import Situation

OURS = Checkpoint("miniature", str(miniatures.path("qwen3.5")))


def gather(qwen: Family, lane: dict[str, Any], **arguments: Any) -> Situation:
    built = Lane(name="x", file=Path("/x"), title="t", **lane)
    return preflight_gather.gather(
        qwen, OURS, built, Environment(None), recorded("h100x8"), **arguments
    )


def test_own_server_inherits_the_environment(qwen: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    lane = {"python": "/py", "env": {"A": "lane"}}
    situation = gather(qwen, lane, env={"CUDA_VISIBLE_DEVICES": "2"})
    assert situation.machine is not None and situation.own_limits
    assert situation.environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert situation.environment["A"] == "lane"
    assert situation.model.config["architectures"] == ["Qwen3_5ForCausalLM"]
    assert not situation.parsers_known


def test_container_gets_only_its_variables(qwen: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HF_HOME", "/hf")
    command = ("/usr/bin/docker", "run", "--env=HF_HOME", "-e", "VLLM_X=1", "--gpus=all", "vllm")
    situation = gather(qwen, {"command": command})
    assert situation.machine is not None and not situation.own_limits
    assert situation.environment == {"HF_HOME": "/hf", "VLLM_X": "1"}


def test_a_listed_checkpoint_brings_its_native_context(qwen: Family) -> None:
    built = Lane(name="x", file=Path("/x"), title="t", command=("docker", "run"))
    listed = Checkpoint("4B", "Qwen/Qwen3.5-4B")
    situation = preflight_gather.gather(
        qwen, listed, built, Environment(None), recorded("h100x8"), renderer=True
    )
    assert situation.native == 262144
    assert gather(qwen, {"command": ("docker", "run")}).native is None


def test_a_server_started_elsewhere_is_on_another_machine(qwen: Family) -> None:
    assert gather(qwen, {"command": ("ssh", "host", "vllm")}).machine is None
    assert gather(qwen, {"base_url": "http://h/v1"}).machine is None


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        ({"python": "/py", "env": {"HF_HUB_DISABLE_TELEMETRY": "1"}}, True),
        ({"python": "/py", "env": {"HF_ENDPOINT": "https://mirror.example"}}, False),
        ({"command": ("docker", "run")}, False),
    ],
)
def test_lane_with_its_own_hub_cache_is_read_differently(
    qwen: Family, lane: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []

    def read(_: Checkpoint, *, reads_alike: bool) -> Model:
        calls.append(reads_alike)
        return Model("x")

    monkeypatch.setattr(checkpoint_files, "read", read)
    gather(qwen, lane)
    assert calls == [expected]


@pytest.mark.parametrize(
    ("address", "is_own"),
    [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("", None), ("spark-1", None)],
)
def test_address_is_compared_with_this_machines(address: str, is_own: bool | None) -> None:
    if address == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    assert preflight_gather._own_address(address) is is_own


def test_library_named_by_a_variable_must_exist(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    variables = {"VLLM_NCCL_SO_PATH": str(library), "OTHER": "/nowhere"}
    assert preflight_gather._missing_files(variables) == {"VLLM_NCCL_SO_PATH": str(library)}
    library.touch()
    assert preflight_gather._missing_files(variables) == {}
