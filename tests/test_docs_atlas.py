"""The page of the atlas is what the recorded results of real runs give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.cli.main import main

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).parent.parent / "docs"
RECORDED, PAGE = DOCS / "atlas.json", DOCS / "atlas.md"


def test_page_is_what_the_recorded_runs_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DOCS.parent)
    assert main(["atlas", "--from", str(RECORDED)]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8"), (
        "write it again: vllm-gates atlas --from docs/atlas.json > docs/atlas.md"
    )


def test_recorded_runs_have_no_path_of_a_machine() -> None:
    text = RECORDED.read_text(encoding="utf-8")
    assert re.findall(r"/(?:root|home|tmp|work)/\S+", text) == []


def test_row_that_begins_or_ends_has_a_request_or_a_case() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## Begins or ends")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows if not (row[4].strip() or row[5].strip(" |"))] == []
