"""Each run with a verdict joins the project's history; an error there fails no run."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import FILE

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project
    from pytest_vllm_gates.history.types import HistoryEntry

QUICK = ("-m", "boot")


def runs_of(project: Project, path: Path = FILE) -> tuple[HistoryEntry, ...]:
    return history_store.runs(project.path / path, 10)


def test_runs_are_stored_and_shown_in_the_report(project: Project) -> None:
    project.gates()
    project.gates(*QUICK, "--require-promotion", faults="bangs")
    first, second = runs_of(project)
    assert (first.promotion, first.exit_status, first.lane) == ("PROMOTE", 0, "fake")
    assert (second.promotion, second.exit_status) == ("REJECT", 1)
    verdict = project.verdict()
    assert list(second.reasons) == verdict["reasons"]
    assert list(second.command) == verdict["command"]
    assert first.checkpoints == {"qwen3.5": "miniature"}
    assert first.figures["qwen3.5"]["boot_s"] > 0
    assert [run["promotion"] for run in verdict["history"]] == ["PROMOTE", "REJECT"]
    assert verdict["history"][0]["figures"] == {
        "qwen3.5: boot_s": first.figures["qwen3.5"]["boot_s"]
    }
    assert (project.path / FILE).with_name(".gitignore").is_file()


def test_run_without_a_report_is_stored_too(project: Project) -> None:
    project.pytest("--model", "qwen3.5", "--lane", "fake", *QUICK)
    assert len(runs_of(project)) == 1


@pytest.mark.parametrize("arguments", [("--collect-only",), ("--no-gates-history", *QUICK)])
def test_disabled_history_writes_nothing(project: Project, arguments: tuple[str, ...]) -> None:
    assert project.gates(*arguments).ret == 0
    assert not (project.path / FILE).parent.exists()
    if project.report.exists():
        assert project.verdict()["history"] == []


def test_history_file_can_be_set_and_disabled_in_settings(project: Project) -> None:
    project.pytester.makeini("[pytest]\ngates_history = kept/runs.sqlite\n")
    project.gates(*QUICK)
    assert len(history_store.runs(project.path / "kept" / "runs.sqlite", 10)) == 1
    project.gates(*QUICK, "--gates-history", "mine.sqlite")
    assert len(history_store.runs(project.path / "mine.sqlite", 10)) == 1
    project.pytester.makeini("[pytest]\ngates_no_history = true\n")
    project.gates(*QUICK)
    assert not (project.path / FILE).exists()


def test_run_on_the_other_lane_is_part_of_ours(project: Project) -> None:
    project.lane()
    text = (project.path / "lanes" / "fake.toml").read_text()
    project.write("lanes/stable.toml", text)
    project.gates("--against", "stable", *QUICK)
    (run,) = runs_of(project)
    assert (run.lane, run.against) == ("fake", "stable")


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE mine (x TEXT)")
    file.close()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign, "is a SQLite file of another program, and was not changed"),
        (lambda path: path.write_text("no database"), "is damaged, or not a history"),
        (lambda path: path.mkdir(), "cannot be opened"),
    ],
    ids=["foreign", "damaged", "a folder"],
)
def test_unwritable_history_is_reported_and_fails_nothing(
    project: Project, spoil: object, message: str
) -> None:
    path = project.path / FILE
    path.parent.mkdir()
    spoil(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else None
    result = project.gates("--require-promotion")
    assert result.ret == 0
    (line,) = (line for line in result.outlines if line.startswith("  not in the history: "))
    assert message in line
    assert project.verdict()["promotion"] == "PROMOTE"
    assert len(project.verdict()["history"]) == 1
    assert before == (path.read_bytes() if path.is_file() else None)


def test_replay_is_not_stored_as_a_run(project: Project) -> None:
    project.gates(*QUICK, faults="bangs")
    (incident,) = (project.report / "incidents").iterdir()
    result = project.pytest("--repro", str(incident), "--lane", "fake")
    assert "vllm gates: replaying" in result.stdout.str()
    assert "  next: " not in result.stdout.str()
    assert len(runs_of(project)) == 1
