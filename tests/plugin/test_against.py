"""The gates run on both lanes, and the verdict is about the difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_vllm_gates
from pytest_vllm_gates.options.table import Options
from pytest_vllm_gates.session.against import other_lane
from pytest_vllm_gates.verdict import gates as verdict_gates

if TYPE_CHECKING:
    from conftest import Fakes, Project

PACKAGE_GATES = Path(pytest_vllm_gates.__file__).parent / "gates"
OPTIONS = Options(rootdir=Path("/nowhere"), verbose=False)
WRONG_KEY = "test_refuses_a_wrong_key[qwen3.5]"


def compared(project: Project, ours: str, theirs: str, *more: str) -> pytest.RunResult:
    """Run the boot gate on two fake lanes with these faults."""
    project.lane(theirs)
    (project.path / "lanes" / "fake.toml").rename(project.path / "lanes" / "stable.toml")
    return project.gates("--against", "stable", "-m", "boot", *more, faults=ours)


def reasons(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("  - qwen3.5: boot is ")]


def test_failure_on_our_lane_alone_is_a_regression(project: Project) -> None:
    result = compared(project, "any-key", "")
    assert result.ret == 1
    assert "verdict: REJECT" in result.outlines
    (reason,) = reasons(result)
    assert "no regression" not in reason
    (check,) = project.verdict()["against"]["checks"]
    assert (check["test"], check["kind"]) == (WRONG_KEY, "regression")
    assert (check["ours"], check["theirs"]) == ("FAIL", "PASS")
    assert check["ours_says"]


def test_failure_on_both_lanes_is_not_a_regression_and_yields_hold(project: Project) -> None:
    result = compared(project, "any-key", "any-key")
    assert result.ret == 6
    assert "verdict: HOLD" in result.outlines
    (reason,) = reasons(result)
    assert reason.endswith("(not a regression: it also fails on lane stable)")
    (check,) = project.verdict()["against"]["checks"]
    assert check["kind"] == "both"


def test_failure_on_the_other_lane_alone_is_mended(project: Project) -> None:
    result = compared(project, "", "any-key")
    assert result.ret == 6, "gates that did not run yield HOLD"
    assert not reasons(result)
    (check,) = project.verdict()["against"]["checks"]
    assert (check["kind"], check["ours"], check["theirs"]) == ("mended", "PASS", "FAIL")


def test_other_lane_that_does_not_boot_is_reported(project: Project) -> None:
    compared(project, "", "dies")
    comparison = project.verdict()["against"]
    kinds = {check["test"]: check["kind"] for check in comparison["checks"]}
    assert kinds.pop("test_boots[qwen3.5]") == "mended"
    assert set(kinds.values()) == {"unequal"}
    assert comparison["promotion"] == "REJECT"


def test_other_lanes_report_and_log_are_complete(project: Project) -> None:
    compared(project, "", "")
    verdict = json.loads((project.report / "against" / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["lane"]["name"] == "stable"
    assert project.verdict()["against"]["document"] == "against/verdict.json"
    assert project.verdict()["against"]["lane"] == verdict["lane"]
    assert project.verdict()["against"]["checks"] == []
    log = (project.report / "against" / "pytest.txt").read_text(encoding="utf-8")
    assert "verdict: HOLD" in log
    assert "next:" not in log, "nobody can paste a command of the other lane's run"
    assert project.verdict()["next"]


def test_gates_that_cannot_run_on_the_other_lane_yield_hold(project: Project) -> None:
    project.lane()
    file = project.path / "lanes" / "fake.toml"
    file.rename(project.path / "lanes" / "stable.toml")
    result = project.gates("--against", "stable", "-m", "boot", "--rootdir", "nowhere-else")
    assert result.ret != 0


def test_same_lane_twice_runs_each_gate_once(project: Project) -> None:
    result = project.gates("--against", "fake", "-m", "boot")
    assert not (project.report / "against").exists()
    assert "verdict: HOLD" in result.outlines


def test_comparison_writes_a_report_by_default(project: Project) -> None:
    project.lane()
    file = project.path / "lanes" / "fake.toml"
    (project.path / "lanes" / "stable.toml").write_text(file.read_text(), encoding="utf-8")
    arguments = ("--model", "qwen3.5", "--lane", "fake", "--against", "stable", "-m", "boot")
    project.pytest(*arguments)
    assert (project.path / "gates-report" / "verdict.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        (["--model", "x", "--against", "a", "-v"], ["--model", "x", "-v"]),
        (["--lane=b", "--model=x", "-m", "boot", "-x"], ["--model=x"]),
        (["--junitxml=j.xml", "--update-baseline", "tests"], ["tests"]),
        (["--maxfail", "3", "-k", "boots", "-mboot"], ["-k", "boots"]),
        (["--gates-lane=b", "--gates-against", "a", "--gates-update-golden", "t"], ["t"]),
    ],
)
def test_options_of_this_run_alone_are_not_passed_on(
    arguments: list[str], passed_on: list[str]
) -> None:

    assert other_lane.handed_on(arguments, OPTIONS) == passed_on


def test_attached_lane_is_compared_with_its_baseline(project: Project, fakes: Fakes) -> None:
    shutil.copy(PACKAGE_GATES / "test_throughput.py", verdict_gates.GATES)
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
