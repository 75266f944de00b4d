"""A lane's file has one way to serve, and an invalid one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import lane
from pytest_vllm_gates.errors import UserError

TITLE = 'title = "mine"\n'


def write_lane(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / "lanes" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(TITLE + text)
    return path


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('python = "/opt/bin/python"\n', "python"),
        ('lock = "cpu.txt"\npython_version = "3.12"\n', "lock"),
        ('command = ["docker", "run"]\nserved_model_name = "m"\n', "command"),
        ('base_url = "http://127.0.0.1:8000/v1"\n', "base_url"),
    ],
)
def test_a_lane_has_one_of_four_forms(tmp_path: Path, text: str, form: str) -> None:
    write_lane(tmp_path, text)
    assert lane.load("mine", tmp_path).form == form


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "exactly one of python, lock, command, base_url; this one has none of them"),
        ('python = "p"\nbase_url = "u"\n', "this one has python and base_url"),
        ('python = "p"\nserved_model_name = "m"\n', "otherwise set it as a flag in [serve]"),
        ('python = "p"\ntorch_backend = "cpu"\n', "torch_backend has no effect in a lane"),
        ('base_url = "u"\n[env]\nA = "b"\n[waive]\nports = "x"\n',
         "env, waive has no effect in a lane that has base_url"),
        ('base_url = "u"\n[lora_modules]\nsql = "/a"\n', "lora_modules has no effect"),
        ('lock = "mine.txt"\n', "make it: python -m pytest_vllm_gates.environment.relock"),
        ('python = "p"\noverlay = "mine"\n', "is not a folder"),
        ('python = "p"\npython_version = "2.7"\n', "python_version"),
        ('python = "p"\n[load]\nusers = "many"\n', "mine.toml"),
        ('python = "p"\n[throughput]\nblocks = "many"\n', "mine.toml"),
    ],
)  # fmt: skip
def test_invalid_lane_is_reported_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    write_lane(tmp_path, text)
    with pytest.raises(UserError) as caught:
        lane.load("mine", tmp_path)
    assert message in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_lane_paths_are_beside_the_lane_or_shipped(tmp_path: Path) -> None:
    write_lane(tmp_path, 'lock = "cpu.txt"\noverlay = "repairs"\n')
    folder = tmp_path / "lanes"
    (folder / "repairs").mkdir()
    loaded = lane.load("mine", tmp_path)
    assert loaded.lock_path == lane.SHIPPED / "cpu.txt"
    assert loaded.overlay_path == folder / "repairs"
    (folder / "cpu.txt").write_text("vllm==1\n")
    assert lane.load("mine", tmp_path).lock_path == folder / "cpu.txt"
    write_lane(tmp_path, 'python = "p"\n')
    plain = lane.load("mine", tmp_path)
    assert (plain.lock_path, plain.overlay_path) == (None, None)


def test_a_projects_lane_replaces_the_shipped_one(tmp_path: Path) -> None:
    path = write_lane(tmp_path, 'python = "p"\n', "cpu")
    assert lane.files(tmp_path)["cpu"] == path
    assert lane.load("cpu", tmp_path).title == "mine"
    with pytest.raises(UserError, match="did you mean 'cpu'"):
        lane.load("cpuu", tmp_path)


def test_lane_file_has_the_scales_of_healthy_machines(tmp_path: Path) -> None:
    table = '[numerics.other_machine."qwen3.5"]\nnats = 0.02\nclosest_nats = 0.01\n'
    write_lane(tmp_path, f'python = "p"\n{table}')
    scales = lane.load("mine", tmp_path).numerics.other_machine
    assert (scales["qwen3.5"].nats, scales["qwen3.5"].closest_nats) == (0.02, 0.01)
    write_lane(tmp_path, f'python = "p"\n{table.replace("0.01", "0")}')
    with pytest.raises(UserError, match="closest_nats"):
        lane.load("mine", tmp_path)


@pytest.mark.parametrize("name", ["cpu", "cpu-previous"])
def test_cpu_lanes_bound_the_caches_that_have_an_entry_for_each_shape(name: str) -> None:
    env = lane.load(name, Path("/nowhere")).env
    for cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        assert 1 <= int(env[cache]) < 1024  # without it, 1,024
