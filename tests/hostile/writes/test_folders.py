"""A report, incident, history or summary that cannot be written changes no verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project, Result

CRASHES = ("INTERNALERROR", "Traceback (most recent call last)", "errors during")
UNWRITABLE = {
    "no-such-folder": ("/proc/nowhere/out", "No such file or directory"),
    "below-a-file": ("taken/out", "Not a directory"),
    "long-name": ("x" * 300, "File name too long"),
}


def run(project: Project, *arguments: str, report: str = "out") -> Result:
    """Run the gates; return what came of it, having seen that nothing crashed."""
    result = project.pytest(
        "--model", "qwen3.5", "--lane", "fake", "--gates-report", report, "--require-promotion",
        *arguments,
    )  # fmt: skip
    text = result.stdout.str() + result.stderr.str()
    assert not [crash for crash in CRASHES if crash in text], text
    return result


ENDINGS = [("", (), "PROMOTE", 0), ("bangs", (), "REJECT", 1), ("", ("-m", "boot"), "HOLD", 6)]


@pytest.mark.parametrize("place", UNWRITABLE)
@pytest.mark.parametrize("ending", ENDINGS, ids=["promote", "reject", "hold"])
def test_unwritable_report_leaves_the_verdict(
    project: Project, place: str, ending: tuple[str, tuple[str, ...], str, int]
) -> None:
    (report, why), (faults, marked, promotion, status) = UNWRITABLE[place], ending
    project.write("taken", "a file")
    project.lane(faults)
    result = run(project, *marked, report=report)
    assert result.ret == status
    lines = result.outlines
    assert f"verdict: {promotion}" in lines
    assert len([line for line in lines if "verdict.json was not written" in line]) == 1
    assert f"verdict.json was not written: {why}" in result.stdout.str()
    assert "nor was report.html" in lines
    lost = [line for line in lines if line.startswith("  no incident was written of")]
    assert len(lost) == (promotion == "REJECT")
    assert [line for line in lines if line.startswith("  the report's folder")]
    assert (project.path / "taken").read_text() == "a file"


REMOVING = """
import pathlib, shutil
def pytest_runtest_teardown(item):
    out = pathlib.Path({report!r})
    if out.is_dir():
        shutil.rmtree(out)
        out.with_name("removed").touch()
        {then}
"""


def remove_report(project: Project, then: str = "") -> None:
    """Have the report's folder removed after the first test, and something else done then."""
    project.write("removing.py", REMOVING.format(report=str(project.report), then=then))
    project.pytester.syspathinsert()


@pytest.mark.parametrize("faults", ["", "bangs"])
def test_report_folder_that_is_removed_is_made_again(project: Project, faults: str) -> None:
    project.lane(faults)
    remove_report(project)
    assert run(project, "-p", "removing").ret == (1 if faults else 0)
    assert (project.path / "removed").exists()
    assert project.verdict()["promotion"] == ("REJECT" if faults else "PROMOTE")
    assert (project.report / "report.html").is_file()


@pytest.mark.parametrize("faults", ["", "bangs", "dies-after:3"])
def test_report_folder_that_a_file_replaces_is_named(project: Project, faults: str) -> None:
    project.lane(faults)
    remove_report(project, "out.write_text('a file')")
    result = run(project, "-p", "removing")
    assert result.ret == (1 if faults else 0)
    assert f"verdict: {'REJECT' if faults else 'PROMOTE'}" in result.outlines
    assert f"{project.report}/verdict.json was not written: Not a directory" in result.stdout.str()
    assert project.report.read_text() == "a file"


def test_verdict_of_an_earlier_run_is_called_that(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_vllm_gates import files  # noqa: PLC0415 - as the run has it

    assert run(project).ret == 0
    before = (project.report / "verdict.json").read_bytes()
    real = files._put

    def put(aside: Path, path: Path) -> None:
        if path.name == "verdict.json":
            aside.unlink()
            raise OSError(28, "No space left on device")
        real(aside, path)

    monkeypatch.setattr(files, "_put", put)
    result = run(project, "-m", "boot")
    assert result.ret == 6
    assert "the existing verdict.json is from an earlier run" in result.outlines
    assert (project.report / "verdict.json").read_bytes() == before
    assert "No space left on device" in (project.report / "report.html").read_text()
    assert not [*project.report.glob(".*")]


@pytest.mark.parametrize("place", ["/dev/full", "/proc/nowhere/x.md"])
def test_summary_that_cannot_be_written_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", place)
    result = run(project)
    assert result.ret == 0
    assert f"summary: not written to {place} ($GITHUB_STEP_SUMMARY): " in result.stdout.str()


@pytest.mark.parametrize("place", ["/dev/full", "/proc/nowhere/x.xml", "taken/x.xml"])
def test_junit_file_that_cannot_be_written_is_named(project: Project, place: str) -> None:
    project.write("taken", "a file")
    result = run(project, "--junitxml", place)
    assert result.ret == 0
    assert "verdict: PROMOTE" in result.outlines
    assert "was not written: " in result.stdout.str()
    assert "generated xml file" not in result.stdout.str()


def test_history_that_cannot_be_written_is_in_the_verdict(project: Project) -> None:
    project.write(".vllm-gates", "a file")
    assert run(project).ret == 0
    verdict = json.loads((project.report / "verdict.json").read_text())
    assert verdict["promotion"] == "PROMOTE"
    (note,) = verdict["notes"]
    assert note.startswith("not in the history: the history ")
    assert "--no-gates-history" in note
    assert "not in the history" in (project.report / "report.html").read_text()
    project.verdict()  # by its schema


def test_golden_that_cannot_be_recorded_is_no_fault_of_the_server(project: Project) -> None:
    project.write("golden", "a file")
    project.pytester.makepyfile(
        test_own="""
        import pytest
        pytestmark = pytest.mark.words
        def test_new(golden, subject):
            golden.check("new", "text")
        def test_written(golden, subject):
            golden.record("other", "text")
        """
    )
    result = run(project, "--update-golden", "test_own.py")
    assert result.ret == 6
    outcomes = [
        (test["outcome"], test["reason"])
        for gate in project.verdict()["families"][0]["gates"]
        for test in gate["tests"]
        if test["test"].startswith(("test_new", "test_written"))
    ]
    assert [outcome for outcome, _ in outcomes] == ["BLOCKED", "BLOCKED"]
    assert all("was not written: Not a directory" in reason for _, reason in outcomes)
    assert (project.path / "golden").read_text() == "a file"
