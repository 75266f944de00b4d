"""Two lanes held side by side: the same gates on both, and a verdict about the difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates
from pytest_vllm_gates.catalog import flags as catalog_flags
from pytest_vllm_gates.session import against, collection as session_collection

if TYPE_CHECKING:
    from conftest import Fakes, Project

PACKAGE_GATES = Path(pytest_vllm_gates.__file__).parent / "gates"
WRONG_KEY = "test_refuses_a_wrong_key[qwen3.5]"


def held(project: Project, ours: str, theirs: str, *more: str) -> pytest.RunResult:
    """Run the boot gate on two fake lanes that misbehave as told."""
    project.lane(theirs)
    (project.path / "lanes" / "fake.toml").rename(project.path / "lanes" / "stable.toml")
    return project.gates("--against", "stable", "-m", "boot", *more, faults=ours)


def reasons(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("  - qwen3.5: boot is ")]


def test_what_fails_on_ours_alone_is_a_regression(project: Project) -> None:
    result = held(project, "any-key", "")
    assert result.ret == 1
    assert "verdict: REJECT" in result.outlines
    (reason,) = reasons(result)
    assert "no regression" not in reason
    (check,) = project.verdict()["against"]["checks"]
    assert (check["test"], check["kind"]) == (WRONG_KEY, "regression")
    assert (check["ours"], check["theirs"]) == ("FAIL", "PASS")
    assert check["ours_says"]


def test_what_fails_on_both_is_no_regression_and_does_not_promote(project: Project) -> None:
    result = held(project, "any-key", "any-key")
    assert result.ret == 6
    assert "verdict: HOLD" in result.outlines
    (reason,) = reasons(result)
    assert reason.endswith("(no regression: it fails on lane stable as well)")
    (check,) = project.verdict()["against"]["checks"]
    assert check["kind"] == "both"


def test_what_failed_there_alone_is_mended(project: Project) -> None:
    result = held(project, "", "any-key")
    assert result.ret == 6, "gates that did not run hold the promotion"
    assert not reasons(result)
    (check,) = project.verdict()["against"]["checks"]
    assert (check["kind"], check["ours"], check["theirs"]) == ("mended", "PASS", "FAIL")


def test_a_lane_that_does_not_boot_there_is_told_apart(project: Project) -> None:
    held(project, "", "dies")
    found = project.verdict()["against"]
    kinds = {check["test"]: check["kind"] for check in found["checks"]}
    assert kinds.pop("test_boots[qwen3.5]") == "mended"
    assert set(kinds.values()) == {"unequal"}
    assert found["promotion"] == "REJECT"


def test_the_other_lanes_report_is_a_whole_one(project: Project) -> None:
    held(project, "", "")
    found = json.loads((project.report / "against" / "verdict.json").read_text(encoding="utf-8"))
    assert found["lane"]["name"] == "stable"
    assert project.verdict()["against"]["document"] == "against/verdict.json"
    assert project.verdict()["against"]["lane"] == found["lane"]
    assert project.verdict()["against"]["checks"] == []


def test_gates_that_cannot_run_there_hold(project: Project) -> None:
    project.lane()
    file = project.path / "lanes" / "fake.toml"
    file.rename(project.path / "lanes" / "stable.toml")
    result = project.gates("--against", "stable", "-m", "boot", "--rootdir", "nowhere-else")
    assert result.ret != 0


def test_the_same_lane_twice_runs_no_gate_twice(project: Project) -> None:
    result = project.gates("--against", "fake", "-m", "boot")
    assert not (project.report / "against").exists()
    assert "verdict: HOLD" in result.outlines


def test_a_run_of_its_own_is_reported_without_being_asked(project: Project) -> None:
    project.lane()
    file = project.path / "lanes" / "fake.toml"
    (project.path / "lanes" / "stable.toml").write_text(file.read_text(), encoding="utf-8")
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--against", "stable", "-m", "boot")
    project.pytest(*arguments)
    assert (project.path / "gates-report" / "verdict.json").is_file()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--model", "x", "--against", "a", "-v"], ["--model", "x", "-v"]),
        (["--lane=b", "--model=x", "-m", "boot", "-x"], ["--model=x"]),
        (["--junitxml=j.xml", "--update-baseline", "tests"], ["tests"]),
        (["--maxfail", "3", "-k", "boots", "-mboot"], ["-k", "boots"]),
    ],
)
def test_what_is_this_runs_alone_is_not_handed_on(given: list[str], kept: list[str]) -> None:

    assert catalog_flags.without(given, against.VALUED, against.FLAGS) == kept


def test_a_lane_that_runs_already_is_held_against_its_baseline(
    project: Project, fakes: Fakes
) -> None:
    shutil.copy(PACKAGE_GATES / "test_throughput.py", session_collection.GATES)
    project.lane()
    server = fakes()
    lane = f'title = "it runs"\nbase_url = "{server.base_url}"\ncheckpoint = "miniature"\n'
    project.write("lanes/running.toml", lane)
    arguments = ("--model", "qwen3.5", "--lane", "running", "--against", "fake")
    project.pytest(*arguments, "--gates-report", "out", "-m", "throughput")
    outcomes = project.outcomes()
    assert outcomes["throughput::test_is_as_fast_as_recorded[]"] == "MISSING"
    assert outcomes["throughput::test_is_as_fast_as_the_other_lane[]"] == "N/A"
    assert project.verdict()["promotion"] == "HOLD"
