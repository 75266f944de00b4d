"""Failures as annotations: at the project's file, and with nothing that ends the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.report.annotations import lines
from report.documents import REJECT, load

if TYPE_CHECKING:
    from pathlib import Path


def document(outcome: str, reason: str) -> dict[str, Any]:
    test = {"test": "test_x[a,b]", "outcome": outcome, "reason": reason}
    family = {"name": "gemma/3", "gates": [{"gate": "stop", "tests": [test]}]}
    return {"lane": {"name": "canary"}, "families": [family]}


def test_failure_is_annotated_at_the_title_of_the_familys_file(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "gemma.toml").write_text('# ours\n\ntitle = "Gemma"\n')
    assert [*lines(document("FAIL", "50%\nof it"), tmp_path)] == [
        "::error file=families/gemma.toml,line=3,title=gemma/3%3A stop%3A test_x[a%2Cb] is FAIL::"
        "50%25%0Aof it"
    ]


def test_file_of_the_lane_comes_next_and_then_none(tmp_path: Path) -> None:
    (line,) = lines(document("MISSING", "no golden"), tmp_path)
    assert line == "::warning title=gemma/3%3A stop%3A test_x[a%2Cb] is MISSING::no golden"
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "canary.toml").write_text('python = "x"\n')
    (line,) = lines(document("BLOCKED", "died"), tmp_path)
    assert line.startswith("::error file=lanes/canary.toml,line=1,title=")


def test_passed_and_known_tests_have_no_annotation(tmp_path: Path) -> None:
    for outcome in ("PASS", "KNOWN", "N/A", "WAIVED"):
        assert [*lines(document(outcome, ""), tmp_path)] == []


def test_each_line_of_a_real_document_is_one_command(tmp_path: Path) -> None:
    found = [*lines(load(REJECT), tmp_path)]
    assert found
    assert all(line.startswith(("::error ", "::warning ")) and "\n" not in line for line in found)
