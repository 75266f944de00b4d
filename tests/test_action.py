"""The action of GitHub at the root: valid, and its script hands on what it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ACTION = Path(__file__).parent.parent / "action.yml"
VERDICT = {"promotion": "HOLD"}
PROGRAM = """#!/bin/sh
echo "{name}: $*" >> "$CALLS"
"""


def action() -> Any:
    return YAML(typ="safe").load(ACTION.read_text(encoding="utf-8"))


def step(name: str) -> dict[str, Any]:
    """Return the step whose id or use begins like this."""
    (found,) = (
        each
        for each in action()["runs"]["steps"]
        if each.get("id") == name or each.get("uses", "").startswith(name)
    )
    return dict(found)


def test_action_fits_its_schema() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-actions",
    ]
    done = subprocess.run([*command, ACTION], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_input_stands_in_a_script() -> None:
    """What a script has of an expression is read as a program: inputs come as variables."""
    scripts = [each["run"] for each in action()["runs"]["steps"] if "run" in each]
    assert scripts
    assert not any("${{" in script for script in scripts)


@pytest.mark.parametrize("status", [0, 1, 6])
def test_script_hands_on_what_it_is_told(status: int, tmp_path: Path) -> None:
    programs = tmp_path / "gates-venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("pytest", "vllm-gates"):
        text = PROGRAM.format(name=name) + (f"exit {status}\n" if name == "pytest" else "")
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "verdict.json").write_text(json.dumps(VERDICT))
    given = {
        "MODEL": "qwen3.5,glm", "LANE": "canary", "AGAINST": "stable", "GATES": "not load; ls",
        "ARGUMENTS": "--samples 3", "REPORT": "out",
    }  # fmt: skip
    assert {*given} <= {*step("gates")["env"]}
    done = subprocess.run(
        ["bash", "-e", "-c", step("gates")["run"]], cwd=tmp_path, check=False,
        env={
            **given, "RUNNER_TEMP": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin",
            "GITHUB_OUTPUT": str(tmp_path / "output"), "CALLS": str(tmp_path / "calls"),
        },
    )  # fmt: skip
    assert done.returncode == status
    assert (tmp_path / "calls").read_text().splitlines() == [
        "pytest: --model qwen3.5,glm --gates-report out --junitxml out/junit.xml --lane canary "
        "--against stable -m not load; ls --samples 3",
        "vllm-gates: report out --annotations",
    ]
    assert (tmp_path / "output").read_text() == "verdict=HOLD\n"


def test_own_workflow_fits_its_schema_and_uses_the_action() -> None:
    workflow = ACTION.parent / ".github" / "workflows" / "gates.yml"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    done = subprocess.run(
        [*command, "vendor.github-workflows", workflow], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    (used,) = (
        each
        for each in YAML(typ="safe").load(workflow.read_text())["jobs"]["gates"]["steps"]
        if each.get("uses") == "./"
    )
    assert {*used["with"]} <= {*action()["inputs"]}
