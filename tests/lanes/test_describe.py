"""A lane's bundle in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanes.described import NOWHERE, describe, write
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.lanes.diff import differences

if TYPE_CHECKING:
    from pathlib import Path


def test_environment_is_described_from_its_files(small_project: Path) -> None:
    lane = write(small_project, "mine", 'python = "../bin/python"\n[serve]\nmax-model-len = 8192\n')
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


def test_lane_does_not_differ_from_itself(small_project: Path) -> None:
    lane = write(small_project, "mine", 'python = "../bin/python"\n')
    diff = differences(describe(lane, "glm", "gemma"), describe(lane, "glm", "gemma"))
    assert (diff.changed, diff.unknown) == ((), ())


def test_unbuilt_lane_is_described_from_its_lock() -> None:
    description = describe(lanes.load("cuda", NOWHERE), "glm")
    assert description.versions is not None
    assert description.versions["vllm"] == "0.32.0"
    assert (description.contents, description.cuda) == ({}, "13.0")


def test_lane_flags_are_compared_without_a_family(small_project: Path) -> None:
    lane = write(small_project, "one", 'python = "../bin/python"\n[serve]\nseed = 1\n')
    two = write(small_project, "two", 'python = "../bin/python"\n[serve]\nseed = 2\n')
    diff = differences(describe(lane), describe(two))
    (change,) = diff.changed
    assert (change.axis, change.name, change.ours) == ("flags", "seed", "1")
    assert diff.unknown == ("chat template", "tokenizer", "checkpoint")


def test_only_active_repairs_of_an_overlay_are_described(small_project: Path) -> None:
    lane = lanes.load("cpu", NOWHERE)
    assert describe(lane).overlay == {}
    all_repairs = describe(lane, overlay=lane.overlay_path).overlay
    less = describe(lane, overlay=lane.overlay_path, without=["rotary_embedding"]).overlay
    assert all_repairs is not None and less is not None
    assert {*all_repairs} - {*less} == {"vllm_gates_repairs/rotary_embedding.py"}
    assert small_project


def test_server_elsewhere_is_unknown(small_project: Path) -> None:
    ssh = describe(write(small_project, "there", 'command = ["ssh", "host", "vllm", "serve"]\n'))
    assert (ssh.versions, ssh.cuda, ssh.driver, ssh.machine) == (None, None, None, None)
    docker = describe(
        write(small_project, "docker", 'command = ["docker", "run", "vllm/vllm-openai"]\n')
    )
    assert (docker.versions, docker.driver) == (None, "550.90.07")
    url = describe(write(small_project, "url", 'base_url = "http://host:8000/v1"\n'), "glm")
    assert url.start == {"base_url": "http://host:8000/v1"}
    assert (url.flags, url.environment, url.templates) == (None, None, None)


def test_running_server_is_described_by_its_version_and_its_lane_s_facts(
    small_project: Path,
) -> None:
    text = 'base_url = "http://host:8000/v1"\n[serve]\nmax_model_len = 4096\n'
    lane = write(small_project, "url", text)
    url = describe(lane, "glm", server_version="0.32.0")
    assert (url.versions, url.partial) == ({"vllm": "0.32.0"}, True)
    assert url.flags == {"glm": {"max_model_len": "4096"}}


def test_secret_is_hidden_and_its_change_is_reported(small_project: Path) -> None:
    lane = """
command = ["docker", "run", "--env=HF_TOKEN=hf_{0}", "--api-key", "sk_{0}", "image"]
[env]
MY_SECRET = "s_{0}"
PROXY = "http://me:p_{0}@proxy"
[serve]
hf_token = "hf_{0}"
max_num_batched_tokens = 2048
"""
    description = describe(write(small_project, "one", lane.format("one")), "glm")
    two = describe(write(small_project, "two", lane.format("two")), "glm")
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
