"""A run writes a page and a CI job's summary, and names both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from conftest import Project


def test_page_is_beside_the_verdict(project: Project) -> None:
    result = project.gates(faults="dies-after:3")
    page = (project.report / "report.html").read_text(encoding="utf-8")
    assert f"report: {project.report / 'report.html'}" in result.outlines
    assert "Streamed answer equals the whole: plain" in page
    assert project.verdict()["families"][0]["gates"][0]["title"].startswith("The server boots")
    assert "test_streamed_answer_equals_the_whole[qwen3.5-plain]" in page


def test_a_ci_job_gets_its_summary(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = project.pytest("--model", "qwen3.5", "--lane", "fake", "-m", "boot")
    assert f"summary: {summary}" in result.outlines
    assert summary.read_text(encoding="utf-8").startswith("## ⏸️ HOLD: fake\n")
    assert not project.report.exists()


def test_unwritable_summary_fails_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/summary.md")
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert any(
        line.startswith("summary: not written to /nowhere/summary.md") for line in result.outlines
    )
