"""`vllm-gates report` writes the report again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.documents import REJECT, load

from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.report import document, markdown

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_page_is_written_beside_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = document.write(tmp_path, load(REJECT))
    for file in (tmp_path, path):
        (tmp_path / "report.html").unlink(missing_ok=True)
        assert main(["report", str(file)]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
        assert "REJECT" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_summary_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document.write(tmp_path, load(REJECT))
    assert main(["report", "--markdown", str(tmp_path)]) == 0
    assert capsys.readouterr().out == markdown.summary(load(REJECT))
    assert not (tmp_path / "report.html").exists()


def test_folder_without_a_report_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path / 'verdict.json'}: cannot be read: No such file or directory\n"
    )
