"""Families are spread over several GPUs with pytest-xdist; one GPU is refused."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

import pytest
from machines import put_in_place

if TYPE_CHECKING:
    from conftest import Project

# The length of its header, and a header of no tensors.
WEIGHTS = "\2\0\0\0\0\0\0\0{}"
DEVICES_GATE = """
from pathlib import Path

def test_devices(launch, subject, evidence):
    server = launch.processes()[-1]
    env = Path(f"/proc/{server}/environ").read_text().split(chr(0))
    evidence["devices"] = [line for line in env if line.startswith("CUDA_VISIBLE_DEVICES=")]
"""


def test_two_gpus_serve_two_families_at_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", 2)
    project.lane()
    project.write("mine/test_devices.py", DEVICES_GATE)
    families = "qwen3.5,qwen3.5/moe"
    moe = project.write("moe/config.json", "{}").parent
    project.write("moe/model.safetensors", WEIGHTS)
    result = project.pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--model", families, "--lane", "fake", "--checkpoint", str(moe),
        "--gates-report", "out", "-n", "2", "-k", "test_devices or test_boots", "mine",
    )  # fmt: skip
    devices = {
        family["name"]: test["evidence"]["devices"]
        for family in project.verdict()["families"]
        for gate in family["gates"]
        for test in gate["tests"]
        if gate["gate"] == "devices"
    }
    assert sorted(devices) == ["qwen3.5", "qwen3.5/moe"], result.stdout.str()
    assert sorted(functools.reduce(operator.iadd, devices.values(), [])) == [
        "CUDA_VISIBLE_DEVICES=0",
        "CUDA_VISIBLE_DEVICES=1",
    ]
    assert all(family["boot"]["ok"] for family in project.verdict()["families"])


@pytest.mark.parametrize(("gpus", "message"), [(0, "0 GPUs"), (1, "1 GPUs")])
def test_one_gpu_is_not_shared(
    project: Project, monkeypatch: pytest.MonkeyPatch, gpus: int, message: str
) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", gpus)
    project.lane()
    result = project.pytest("--model", "qwen3.5", "--lane", "fake", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.str()
    assert "-n 2 would boot 2 servers at once, each on 1 of this machine's" in errors
    assert message in errors
    assert "leave -n out, and families follow one another" in errors


def test_server_over_two_gpus_counts_twice(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", 2)
    project.lane(more="\n[serve]\ntensor_parallel_size = 2\n")
    result = project.pytest("--model", "qwen3.5", "--lane", "fake", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "each on 2 of this machine's 2 GPUs" in result.stderr.str()
