"""The printed commands of a lane equal those that the gates start."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints.resolve import resolve
from pytest_vllm_gates.lanes import commands as lane_commands
from pytest_vllm_gates.server import launch
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    from pytest_vllm_gates.catalog.checkpoint import Checkpoint
    from pytest_vllm_gates.catalog.family import Family

NOWHERE = Path("/nowhere")
SHOW = "import os, sys; print(sys.argv[1:]); print({n: os.environ.get(n) for n in %r})"


def subject(name: str = "qwen3.5") -> tuple[Family, Checkpoint]:
    family = families.load(name, NOWHERE)
    return family, resolve(family, "miniature")


def lane(tmp_path: Path, text: str) -> lanes.Lane:
    (tmp_path / "lanes").mkdir(exist_ok=True)
    (tmp_path / "lanes/own.toml").write_text(f'title = "own"\n{text}')
    return lanes.load("own", tmp_path)


def ran(commands: list[str], folder: Path, *names: str, **env: str) -> tuple[list[str], Any]:
    """Run the commands with fake programs that print their arguments."""
    path = folder / "shown"
    path.write_text(f"#!{sys.executable} -IS\n{SHOW % (names,)}")
    path.chmod(0o755)
    (folder / "vllm-gates").write_text(f"#!/bin/sh\necho {path}\n")
    (folder / "vllm-gates").chmod(0o755)
    environ = {"PATH": f"{folder}:{os.environ['PATH']}", **env}
    result = subprocess.run(
        ["bash", "-eu", "-c", "\n".join(commands)],
        env=environ, capture_output=True, check=True, text=True,
    )  # fmt: skip
    arguments, environment = map(ast.literal_eval, result.stdout.splitlines())
    return arguments, environment


def test_package_lane_commands_equal_the_gates_command(tmp_path: Path) -> None:
    cpu = lanes.load("cpu", NOWHERE)
    family, checkpoint = subject()
    commands = lane_commands.commands(cpu, [(family, checkpoint)], overlay=cpu.overlay_path)
    assert commands[0] == 'PYTHON="$(vllm-gates lane make cpu)"'
    arguments, env = ran(commands, tmp_path, "PYTHONPATH", "VLLM_CPU_KVCACHE_SPACE", "PATH")
    plan = launch.LaunchPlan(
        family=family, lane=cpu, checkpoint=checkpoint, python=Path("python"), overlay=None,
        folder=tmp_path, limits=BootLimits(1, 1),
    )  # fmt: skip
    started = launch.command(plan, 1234, "alias")[1:]
    generated = {"--served-model-name", "--host", "--port", "1234", "8000", "127.0.0.1", "alias"}
    assert [argument for argument in arguments if argument not in generated] == [
        argument for argument in started if argument not in generated
    ]
    assert arguments[arguments.index("--served-model-name") + 1] == "qwen3.5"
    assert env["PYTHONPATH"] == str(cpu.overlay_path)
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert env["PATH"].startswith(f"{tmp_path}:")


def test_every_family_is_served_from_one_environment() -> None:
    commands = lane_commands.commands(lanes.load("cpu", NOWHERE), [subject(), subject("glm")])
    assert len(commands) == 3
    assert "--served-model-name glm " in commands[2]


def test_values_are_quoted_and_secrets_are_shell_variables(tmp_path: Path) -> None:
    own_lane = lane(
        tmp_path,
        """
python = "python3"
[env]
PLAIN = "two words; $HOME"
MY_TOKEN = "s3cret"
[serve]
api_key = "s3cret"
override_generation_config = { temperature = 0.5 }
""",
    )
    commands = lane_commands.commands(own_lane, [subject()])
    assert "s3cret" not in "\n".join(commands)
    arguments, env = ran(commands, tmp_path, "PLAIN", "MY_TOKEN", API_KEY="k e y", MY_TOKEN="t")
    assert arguments[arguments.index("--api-key") + 1] == "k e y"
    assert arguments[arguments.index("--override-generation-config") + 1] == '{"temperature": 0.5}'
    assert env == {"PLAIN": "two words; $HOME", "MY_TOKEN": "t"}


@pytest.mark.parametrize("flags", ["", ', "{flags}", "last"'])
def test_a_command_lane_is_served_through_its_prefix(tmp_path: Path, flags: str) -> None:
    own_lane = lane(tmp_path, f'command = ["shown", "-p", "{{port}}", "{{model}}"{flags}]\n')
    checkpoint = subject()[1]
    commands = lane_commands.commands(own_lane, [subject()])
    arguments, _ = ran(commands, tmp_path)
    assert arguments[:3] == ["-p", "8000", checkpoint.source]
    assert arguments[3:5] == ["--model", checkpoint.source]
    assert (arguments[-1] == "last") is bool(flags)


def test_running_server_needs_no_command(tmp_path: Path) -> None:
    own_lane = lane(tmp_path, 'base_url = "http://me:pass@host/v1"\n')
    assert lane_commands.commands(own_lane, [subject()]) == [
        "# lane own runs at http://[redacted]@host/v1: send the requests there"
    ]
