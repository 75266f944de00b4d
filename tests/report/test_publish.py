"""A report is written from its document; an invalid document is refused with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.report import document as documents, publish
from report.documents import REJECT, THEIRS, empty, load

if TYPE_CHECKING:
    from pathlib import Path

SHOWN_OF_THEM = "cpu-previous: a long argument"


def test_all_files_are_written_and_listed(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    environ = {"GITHUB_STEP_SUMMARY": str(summary)}
    messages = publish.publish(tmp_path / "out", empty(), environ)
    folder = tmp_path / "out"
    assert messages == [
        f"report: {folder / 'report.html'}",
        f"verdict: {folder / 'verdict.json'}",
        f"summary: {summary}",
    ]
    assert publish.read(folder)["promotion"] == "HOLD"


def test_without_a_folder_only_the_summary_is_written(tmp_path: Path) -> None:
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")}
    assert publish.publish(None, empty(), environ) == [f"summary: {tmp_path / 's.md'}"]
    assert publish.publish(None, empty(), {}) == []


def test_other_lanes_document_is_read_from_its_folder(tmp_path: Path) -> None:
    documents.write(tmp_path, load(REJECT))
    path = publish.write_html(tmp_path, publish.read(tmp_path))
    assert SHOWN_OF_THEM not in path.read_text(encoding="utf-8")
    documents.write(tmp_path / "against", load(THEIRS))
    publish.write_html(tmp_path, publish.read(tmp_path))
    assert SHOWN_OF_THEM in path.read_text(encoding="utf-8")


def test_half_a_surrogate_pair_survives_the_file(tmp_path: Path) -> None:
    document = empty()
    document["reasons"] = ["half \ud800 a pair", "whole \U0001f600"]
    documents.write(tmp_path, document)
    assert publish.read(tmp_path)["reasons"] == document["reasons"]


def changed(**changes: Any) -> str:
    return json.dumps(empty() | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory\nname a report's folder"),
        ("{", "not valid JSON: Expecting"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "its format is None, not 'pytest-vllm-gates/verdict': name the verdict.json"),
        (changed(format="other"), "its format is 'other'"),
        (changed(version=2), "a verdict of version 2, but this pytest-vllm-gates reads version 1"),
        (changed(promotion="MAYBE"), "at $.promotion: 'MAYBE' is not one of"),
        (changed(more=1), "at $: Additional properties are not allowed ('more' was unexpected)"),
    ],
)
def test_file_that_is_not_a_verdict_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "verdict.json").write_text(text)
    with pytest.raises(UserError) as caught:
        publish.read(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "verdict.json") in str(caught.value)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not valid JSON"):
        publish.read(tmp_path)
