"""The lane of a run: its choice, its reason, its repairs, and a lane that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from machines import put_in_place, stand_in

if TYPE_CHECKING:
    from conftest import Project

COLLECT = ("--model", "qwen3.5", "--collect-only")
REPAIR = '"""Mends a thing.\n\nFound by trying."""\n'


@pytest.mark.parametrize(
    ("gpus", "header"),
    [
        (1, "lane cuda (an NVIDIA GPU answers: NVIDIA H100 80GB HBM3): "),
        (0, "lane cpu (no NVIDIA GPU answers): "),
    ],
)
def test_default_lane_depends_on_the_machine(
    project: Project, monkeypatch: pytest.MonkeyPatch, gpus: int, header: str
) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", gpus)
    result = project.pytest(*COLLECT)
    assert result.ret == 0
    assert f"vllm gates: {header}" in result.stdout.str()


def test_driver_that_does_not_answer_is_not_a_gpu(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(project.path / "bin", monkeypatch, "no devices", status=9)
    assert "lane cpu (no NVIDIA GPU answers)" in project.pytest(*COLLECT).stdout.str()


def overlaid(project: Project) -> None:
    """Give the fake lane an overlay with one repair."""
    project.write("lanes/repairs/thing.py", REPAIR)
    project.lane()
    lane = project.path / "lanes" / "fake.toml"
    lane.write_text('overlay = "repairs"\n' + lane.read_text())


def test_repairs_are_named_in_the_header_and_the_report(project: Project) -> None:
    overlaid(project)
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--gates-report", "out", "-k", "boots")
    result = project.pytest(*arguments)
    assert result.ret == 0
    assert "vllm gates: overlay thing: Mends a thing." in result.outlines
    assert project.verdict()["lane"]["overlay"] == ["thing: Mends a thing."]

    result = project.pytest(*arguments, "--no-overlay")
    assert "vllm gates: the lane's overlay is left out (--no-overlay)" in result.outlines
    assert project.verdict()["lane"]["overlay"] == []


def test_missing_interpreter_yields_hold_with_a_fix(project: Project) -> None:
    project.write("lanes/fake.toml", 'title = "x"\npython = "/no/such/python"\n')
    result = project.pytest(
        "--model", "qwen3.5", "--lane", "fake", "--checkpoint", "miniature",
        "--gates-report", "out",
    )  # fmt: skip
    assert result.ret == 1
    assert project.verdict()["promotion"] == "HOLD"
    outcomes = project.outcomes()
    assert outcomes.pop("boot::test_leaves_nothing_behind[]") == "N/A"
    assert set(outcomes.values()) == {"BLOCKED"}
    output = result.stdout.str()
    assert "the interpreter '/no/such/python' does not exist or cannot be run" in output
    assert "make it: python -m venv FOLDER" in output


def test_missing_command_fails_the_boot(project: Project) -> None:
    project.write(
        "lanes/fake.toml",
        'title = "x"\ncommand = ["/no/such/docker", "run"]\ncheckpoint = "miniature"\n',
    )
    result = project.pytest("--model", "qwen3.5", "--lane", "fake", "-m", "boot")
    assert result.ret == 1
    output = result.stdout.str()
    assert "the server ended before it was ready (exit status 127)" in output
    assert "cannot start /no/such/docker: No such file or directory" in output


def test_boot_timeout_ends_a_boot(project: Project) -> None:
    result = project.gates("-m", "boot", "--boot-timeout", "0.5", faults="chatters")
    assert result.ret == 1
    result.stdout.re_match_lines([r".*the server was not ready after \d+ s \(--boot-timeout\)"])
    result = project.gates("-m", "boot", "--stall-timeout", "0.5", faults="silent")
    assert result.ret == 1
    result.stdout.re_match_lines([r".*made no progress for \d+ s \(--stall-timeout\)"])
