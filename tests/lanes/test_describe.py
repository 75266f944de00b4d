"""A lane's bundle in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from environment.site_packages import distribution, interpreter
from machines import recorded

from pytest_vllm_gates.catalog import family as families, lane as lanes
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.checkpoints.resolve import resolve
from pytest_vllm_gates.environment import environment
from pytest_vllm_gates.lanes import describe as lane_description
from pytest_vllm_gates.lanes.diff import differences

if TYPE_CHECKING:
    from pytest_vllm_gates.lanes.describe import BundleDescription

NOWHERE = Path("/nowhere")
MACHINE = recorded("h100x8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    packages = tmp_path / "packages"
    distribution(packages, "vllm", "0.32.0")
    files = {"torch/version.py": "cuda: str | None = '13.0'\n"}
    distribution(packages, "torch", "2.13.0", files)
    interpreter(tmp_path / "bin" / "python", packages)
    (tmp_path / "lanes").mkdir()
    return tmp_path


def write(project: Path, name: str, text: str) -> lanes.Lane:
    (project / "lanes" / f"{name}.toml").write_text(f'title = "{name}"\n{text}')
    return lanes.load(name, project)


def describe(lane: lanes.Lane, *models: str, **arguments: Any) -> BundleDescription:
    chosen = [families.load(model, NOWHERE) for model in models]
    at_hand = environment.at_hand(lane, cache=NOWHERE)
    subjects = [(family, resolve(family, "miniature")) for family in chosen]
    return lane_description.of(lane, at_hand, MACHINE, subjects, **arguments)


def test_environment_is_described_from_its_files(project: Path) -> None:
    lane = write(project, "mine", 'python = "../bin/python"\n[serve]\nmax-model-len = 8192\n')
    description = describe(lane, "glm")
    assert description.versions == {"vllm": "0.32.0", "torch": "2.13.0"}
    assert [*description.contents] == ["torch", "vllm"]
    assert description.python and description.python.startswith("3.")
    assert (description.cuda, description.driver, description.driver_cuda) == (
        "13.0",
        "550.90.07",
        "12.4",
    )
    assert description.flags is not None
    assert description.flags["glm"]["max_model_len"] == "8192"
    assert description.machine is not None
    assert description.machine["GPU"] == "8 x NVIDIA H100 80GB HBM3 (9.0)"
    assert description.templates is not None and description.tokenizers is not None
    assert len(description.templates["glm"] or "") == len(description.tokenizers["glm"] or "") == 64
    assert description.checkpoints is not None
    assert description.checkpoints["glm"]["source"] == str(miniatures.path("glm-4.7"))


def test_lane_does_not_differ_from_itself(project: Path) -> None:
    lane = write(project, "mine", 'python = "../bin/python"\n')
    diff = differences(describe(lane, "glm", "gemma"), describe(lane, "glm", "gemma"))
    assert (diff.changed, diff.unknown) == ((), ())


def test_unbuilt_lane_is_described_from_its_lock() -> None:
    description = describe(lanes.load("cuda", NOWHERE), "glm")
    assert description.versions is not None
    assert description.versions["vllm"] == "0.32.0"
    assert (description.contents, description.cuda) == ({}, "13.0")


def test_lane_flags_are_compared_without_a_family(project: Path) -> None:
    lane = write(project, "one", 'python = "../bin/python"\n[serve]\nseed = 1\n')
    two = write(project, "two", 'python = "../bin/python"\n[serve]\nseed = 2\n')
    diff = differences(describe(lane), describe(two))
    (change,) = diff.changed
    assert (change.axis, change.name, change.ours) == ("flags", "seed", "1")
    assert diff.unknown == ("chat template", "tokenizer", "checkpoint")


def test_only_active_repairs_of_an_overlay_are_described(project: Path) -> None:
    lane = lanes.load("cpu", NOWHERE)
    assert describe(lane).overlay == {}
    all_repairs = describe(lane, overlay=lane.overlay_path).overlay
    less = describe(lane, overlay=lane.overlay_path, without=["rotary_embedding"]).overlay
    assert all_repairs is not None and less is not None
    assert {*all_repairs} - {*less} == {"vllm_gates_repairs/rotary_embedding.py"}
    assert project


def test_server_elsewhere_is_unknown(project: Path) -> None:
    ssh = describe(write(project, "there", 'command = ["ssh", "host", "vllm", "serve"]\n'))
    assert (ssh.versions, ssh.cuda, ssh.driver, ssh.machine) == (None, None, None, None)
    docker = describe(write(project, "docker", 'command = ["docker", "run", "vllm/vllm-openai"]\n'))
    assert (docker.versions, docker.driver) == (None, "550.90.07")
    url = describe(write(project, "url", 'base_url = "http://host:8000/v1"\n'), "glm")
    assert url.start == {"base_url": "http://host:8000/v1"}
    assert (url.flags, url.environment, url.templates) == (None, None, None)


def test_running_server_is_described_by_its_version_and_its_lane_s_facts(project: Path) -> None:
    text = 'base_url = "http://host:8000/v1"\n[serve]\nmax_model_len = 4096\n'
    lane = write(project, "url", text)
    url = describe(lane, "glm", server_version="0.32.0")
    assert (url.versions, url.partial) == ({"vllm": "0.32.0"}, True)
    assert url.flags == {"glm": {"max_model_len": "4096"}}


def test_secret_is_hidden_and_its_change_is_reported(project: Path) -> None:
    lane = """
command = ["docker", "run", "--env=HF_TOKEN=hf_{0}", "--api-key", "sk_{0}", "image"]
[env]
MY_SECRET = "s_{0}"
PROXY = "http://me:p_{0}@proxy"
[serve]
hf_token = "hf_{0}"
max_num_batched_tokens = 2048
"""
    description = describe(write(project, "one", lane.format("one")), "glm")
    two = describe(write(project, "two", lane.format("two")), "glm")
    assert all(
        f"_{name}" not in repr(side) for side in (description, two) for name in ("one", "two")
    )
    assert description.flags is not None
    assert description.flags["glm"]["max_num_batched_tokens"] == "2048"
    changed = {(change.axis, change.name) for change in differences(description, two).changed}
    assert changed == {
        ("environment", "MY_SECRET"), ("environment", "PROXY"), ("start", "command"),
        ("flags", "glm: hf_token"),
    }  # fmt: skip
