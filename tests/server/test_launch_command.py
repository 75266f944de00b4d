"""The command line and the environment of a server."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.environment import overlay as environment_overlay
from pytest_vllm_gates.server import launch
from server.launch_plans import lane, plan_of

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.family import Family


@pytest.fixture
def plan(tmp_path: Path, qwen: Family) -> launch.LaunchPlan:
    return plan_of(qwen, tmp_path / "server")


def test_command_has_model_alias_and_loopback(plan: launch.LaunchPlan) -> None:
    plain_lane = replace(plan, python=Path("/env/bin/python"), lane=Lane(
        name="own", file=Path("/x"), title="x", python="/env/bin/python",
    ))  # fmt: skip
    argv = launch.command(plain_lane, 8123, "qwen3.5-ab")
    assert argv[:3] == ["/env/bin/python", "-m", "vllm.entrypoints.openai.api_server"]
    command_line = " ".join(argv)
    assert "--model org/weights" in command_line
    assert "--served-model-name qwen3.5 qwen3.5-ab --host 127.0.0.1 --port 8123" in command_line
    assert "--reasoning-parser qwen3" in command_line
    assert "--revision" not in argv


def test_a_revision_is_pinned(plan: launch.LaunchPlan) -> None:
    pinned = replace(plan, checkpoint=Checkpoint(name="w", source="org/w", revision="abc123"))
    argv = launch.command(pinned, 1, "a")
    assert argv[argv.index("--revision") + 1] == "abc123"


def test_lane_flags_beat_checkpoint_flags(plan: launch.LaunchPlan) -> None:
    planned = replace(
        plan,
        family=plan.family.model_copy(update={"serve": {"max_model_len": 1, "dtype": "a", "x": 1}}),
        checkpoint=replace(plan.checkpoint, serve={"max-model-len": 2, "dtype": "b"}),
        lane=lane("run", serve={"max_model_len": 3}),
    )
    argv = launch.command(planned, 1, "a")
    values = {flag: argv[argv.index(flag) + 1] for flag in ("--max-model-len", "--dtype", "--x")}
    assert values == {"--max-model-len": "3", "--dtype": "b", "--x": "1"}
    assert argv.count("--max-model-len") == 1


@pytest.mark.parametrize("name", ["hf_token", "hf-token"])
def test_hub_token_of_the_flags_is_not_in_the_command_line(
    plan: launch.LaunchPlan, name: str
) -> None:
    own = replace(plan, lane=plan.lane.model_copy(update={"serve": {name: "letmein-hub"}}))
    argv = launch.command(own, 1, "a")
    assert "--hf-token" not in argv
    assert "letmein-hub" not in " ".join(argv)
    assert launch.environment(own, "k")["HF_TOKEN"] == "letmein-hub"


def test_token_file_of_the_hub_stays_a_flag(plan: launch.LaunchPlan) -> None:
    own = replace(plan, lane=plan.lane.model_copy(update={"serve": {"hf_token": True}}))
    assert "--hf-token" in launch.command(own, 1, "a")


def test_a_command_lanes_placeholders_are_filled(plan: launch.LaunchPlan) -> None:
    argv = launch.command(replace(plan, lane=lane(
        "docker", "run", "-p", "{port}:{port}", "image", "--of={model}",
    )), 8123, "a")  # fmt: skip
    assert argv[:6] == ["docker", "run", "-p", "8123:8123", "image", "--of=org/weights"]
    assert argv[6:8] == ["--model", "org/weights"]


def test_flags_go_to_their_place_in_the_command(plan: launch.LaunchPlan) -> None:
    argv = launch.command(replace(plan, lane=lane("sh", "-c", "x", "{flags}", "end")), 1, "a")
    assert argv[:4] == ["sh", "-c", "x", "--model"]
    assert argv[-1] == "end"
    assert "{flags}" not in argv


def test_python_variables_do_not_leak_into_the_server(
    plan: launch.LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment_overlay.FOREIGN:
        monkeypatch.setenv(name, "/of/this/python")
    monkeypatch.setenv("KEPT", "1")
    env = launch.environment(replace(plan, python=Path("/env/bin/python")), "key")
    assert not set(environment_overlay.FOREIGN) & set(env)
    assert env["KEPT"] == "1"
    assert env["VLLM_API_KEY"] == "key"
    assert env["PATH"].split(os.pathsep)[0] == "/env/bin"


def test_the_overlay_comes_first_on_the_import_path(plan: launch.LaunchPlan) -> None:
    planned = replace(
        plan, overlay=Path("/overlay"), lane=lane("run", env={"PYTHONPATH": "/lanes/own"})
    )
    assert launch.environment(planned, "key")["PYTHONPATH"] == "/overlay:/lanes/own"
    assert launch.environment(replace(planned, overlay=None), "k")["PYTHONPATH"] == "/lanes/own"


def test_lane_environment_beats_defaults(plan: launch.LaunchPlan) -> None:
    planned = replace(plan, lane=lane("run", env={"NO_COLOR": "", "VLLM_API_KEY": "own"}))
    env = launch.environment(planned, "key")
    assert env["NO_COLOR"] == ""
    overridden = replace(planned, env={"NO_COLOR": "2", "CUDA_VISIBLE_DEVICES": "3"})
    assert launch.environment(overridden, "key")["NO_COLOR"] == "2"
    assert launch.environment(overridden, "key")["CUDA_VISIBLE_DEVICES"] == "3"


def test_local_weights_are_served_offline(plan: launch.LaunchPlan, tmp_path: Path) -> None:
    local = replace(plan, checkpoint=Checkpoint(name="w", source=str(tmp_path)))
    assert launch.environment(local, "key")["HF_HUB_OFFLINE"] == "1"
    assert launch.environment(plan, "key").get("HF_HUB_OFFLINE") == os.environ.get("HF_HUB_OFFLINE")
