"""The fingerprint has everything that decides what is served, and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.lane import Lane
from pytest_vllm_gates.environment.environment import Environment
from pytest_vllm_gates.server.kept.fingerprint import HASHED_BYTES, fingerprint
from pytest_vllm_gates.server.kept.record import differences, shortened
from pytest_vllm_gates.server.launch import LaunchPlan
from pytest_vllm_gates.server.patience import BootLimits

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with vllm among its packages."""
    packages = tmp_path / "packages"
    write(packages / "vllm" / "engine.py", "one = 1")
    return Environment(
        tmp_path / "bin" / "python", {"vllm": "0.32.0", "torch": "2.9.0"}, folders=(packages,)
    )


@pytest.fixture
def plan(tmp_path: Path, qwen: Family, environment: Environment) -> LaunchPlan:
    """A plan with every part set."""
    write(tmp_path / "overlay" / "repair.py", "X = 1")
    write(tmp_path / "weights" / "config.json", "{}")
    write(tmp_path / "weights" / "deep" / "tokenizer.json", "{}")
    template = write(tmp_path / "chat.jinja", "{{ x }}")
    return LaunchPlan(
        family=qwen,
        lane=Lane(
            name="own",
            file=tmp_path / "lanes" / "own.toml",
            title="x",
            python="python",
            env={"VLLM_X": "1"},
            serve={"max_model_len": 4096, "chat_template": str(template)},
        ),
        checkpoint=Checkpoint(name="weights", source=str(tmp_path / "weights")),
        python=environment.python,
        overlay=tmp_path / "overlay",
        folder=tmp_path / "report",
        limits=BootLimits(1.0, 1.0),
    )


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def of_lane(plan: LaunchPlan, **changes: Any) -> LaunchPlan:
    return replace(plan, lane=plan.lane.model_copy(update=changes))


def test_equal_plans_have_equal_fingerprints(
    plan: LaunchPlan, environment: Environment, tmp_path: Path
) -> None:
    before = fingerprint(plan, environment)
    # Another report and other limits do not change what is served.
    same_plan = replace(plan, folder=tmp_path / "elsewhere", limits=BootLimits(9.0, 9.0))
    write(tmp_path / "overlay" / "__pycache__" / "repair.pyc", "x")
    assert fingerprint(same_plan, environment) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"serve": {"max_model_len": 8192}}, "flag --max-model-len (kept 4096, requested 8192)"),
        ({"serve": {"max_model_len": 4096, "seed": 7}}, "flag --seed (kept none, requested 7)"),
        ({"env": {"VLLM_X": "2"}}, "variable VLLM_X"),
        ({"env": {}}, "variable VLLM_X (removed)"),
        ({"name": "other"}, "lane (kept own, requested other)"),
    ],
)
def test_another_lane_differs(
    plan: LaunchPlan, environment: Environment, changes: dict[str, Any], message: str
) -> None:
    serve = {**plan.lane.serve, **changes.pop("serve", {})}
    before, after = (
        fingerprint(launch_plan, environment)
        for launch_plan in (plan, of_lane(plan, **changes, serve=serve))
    )
    assert list(differences(before, after)) == [message]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("overlay/repair.py", "overlay repair.py"),
        ("overlay/another.py", "overlay another.py (added)"),
        ("weights/config.json", "checkpoint config.json"),
        ("weights/deep/tokenizer.json", "checkpoint deep/tokenizer.json"),
        ("chat.jinja", "file {tmp_path}/chat.jinja"),
        ("packages/vllm/engine.py", "source of {tmp_path}/packages/vllm"),
    ],
)
def test_a_changed_file_differs(
    plan: LaunchPlan, environment: Environment, tmp_path: Path, file: str, message: str
) -> None:
    before = fingerprint(plan, environment)
    write(tmp_path / file, "changed")
    after = fingerprint(plan, environment)
    assert list(differences(before, after)) == [message.format(tmp_path=tmp_path)]


def test_weights_are_known_by_size_and_time(
    plan: LaunchPlan, environment: Environment, tmp_path: Path
) -> None:
    weights = tmp_path / "weights" / "model.safetensors"
    with weights.open("wb") as file:
        file.truncate(HASHED_BYTES + 1)
    before = fingerprint(plan, environment)
    os.utime(weights, (1, 1))
    assert list(differences(before, fingerprint(plan, environment))) == [
        "checkpoint model.safetensors"
    ]


def test_another_environment_differs(plan: LaunchPlan, environment: Environment) -> None:
    other_environment = replace(environment, versions={"vllm": "0.33.0", "torch": "2.9.0"})
    assert list(
        differences(fingerprint(plan, environment), fingerprint(plan, other_environment))
    ) == ["package vllm (kept 0.32.0, requested 0.33.0)"]


def test_the_sources_of_an_editable_vllm_count(
    plan: LaunchPlan, environment: Environment, tmp_path: Path
) -> None:
    info = tmp_path / "packages" / "vllm-0.32.0.dist-info" / "direct_url.json"
    write(info, f'{{"url": "file://{tmp_path}/checkout", "dir_info": {{"editable": true}}}}')
    engine = write(tmp_path / "checkout" / "vllm" / "engine.py", "one = 1")
    before = fingerprint(plan, environment)
    engine.write_text("two = 22")
    assert list(differences(before, fingerprint(plan, environment))) == [
        f"source of {tmp_path}/checkout/vllm"
    ]


def test_renderer_only_differs_from_a_server(plan: LaunchPlan, environment: Environment) -> None:
    lane = plan.lane.start.model_copy(update={"renderer": ("-m", "renders")})
    plan = of_lane(plan, start=lane)
    alone = fingerprint(replace(plan, renderer=True), environment)
    assert set(differences(fingerprint(plan, environment), alone)) == {"program", "renderer alone"}


def test_variable_values_are_not_shown(
    plan: LaunchPlan, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(plan, environment)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    after = fingerprint(plan, environment)
    assert list(differences(before, after)) == ["variable HF_TOKEN (added)"]
    assert "hf_secret" not in str(after)


@pytest.mark.parametrize("name", ["PWD", "SSH_CLIENT", "PYTEST_CURRENT_TEST", "TERM_SESSION_ID"])
def test_terminal_variables_do_not_differ(
    plan: LaunchPlan, environment: Environment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = fingerprint(plan, environment)
    monkeypatch.setenv(name, "other")
    assert fingerprint(plan, environment) == before


def test_many_differences_are_counted() -> None:
    assert shortened(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert shortened(["a"]) == "a"
