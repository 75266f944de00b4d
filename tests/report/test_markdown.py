"""The summary shows any document's verdict, and escapes all foreign text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.report import markdown
from report.documents import HOSTILE, REJECT, empty, huge, load, spoilt

if TYPE_CHECKING:
    from pathlib import Path


def test_summary_has_verdict_reasons_and_next_steps() -> None:
    summary = markdown.summary(load(REJECT))
    lines = summary.splitlines()
    assert lines[0] == "## ❌ REJECT: cpu against cpu-previous"
    assert lines[2].startswith("Something users would notice that works on cpu-previous is broken")
    for line in (
        "Go back to cpu-previous:",
        "vllm-gates lane make cpu-previous",
        "> ⚠️ 3 axes changed at once (vllm, transformers, flags): a failure cannot be put down to "
        "one of them",
        "| axis | what | cpu | cpu-previous |",
        "| vllm | vllm | 0.32.0 | 0.31.0 |",
        "| kind | check | cpu | cpu-previous |",
        "| regression | glm: boot: test\\_boots\\[glm\\] | FAIL | PASS |",
        "| expired | glm: stop | 2026-11-01 | A. Kim | waiting for vllm\\#51641 |",
        "| boot | ✅ PASS | 5 | 42.7 s |  |",
        "pytest --model glm --lane cpu -m boot -k 'test_boots[glm]'",
    ):
        assert line in lines, line
    assert summary.count("<details>") == summary.count("</details>") > 5
    assert "assert not [" not in summary


def test_summary_explains_why_parts_of_a_bundle_are_unknown() -> None:
    document = load(REJECT)
    document["bundle"] |= {"unknown": ["flags"], "why": ["stable is a URL"]}
    assert "Not known: flags.\n\n- stable is a URL\n" in markdown.summary(document)


def test_next_step_is_a_command() -> None:
    document = empty()
    document["next"] = ["pytest --model glm -m throughput --update-baseline"]
    assert f"```text\n{document['next'][0]}\n```" in markdown.summary(document)


def test_equal_failures_are_listed_once() -> None:
    summary = markdown.summary(load(REJECT))
    assert "BLOCKED glm: tools: test_calls_and_finish_reason_agree[glm] and 4 more alike" in summary


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_markup_in_foreign_text_is_escaped(text: str) -> None:
    summary = markdown.summary(spoilt(load(REJECT), text))
    summary.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", summary)
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", summary, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"(?<!\\)<[^>]*>", outside)) <= {
        "<details>", "<summary>", "</summary>", "</details>",
    }  # fmt: skip
    for line in outside.splitlines():
        if line.startswith("#"):
            assert re.match(r"##? .|### .", line)
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6), line
    # In a summary's line, HTML is read and no Markdown.
    visible = [line for line in outside.splitlines() if not line.startswith("<details>")]
    assert not re.findall(r"(?<!\\)`", "\n".join(visible))


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    document = load(REJECT)
    document["rollback"]["command"] = "a ```` b"
    assert "`````text\na ```` b\n`````" in markdown.summary(document)


def test_a_huge_document_is_cut_with_a_note() -> None:
    summary = markdown.summary(huge())
    assert len(summary.encode()) < 2**20
    assert summary.endswith("_The rest is in verdict.json and report.html._\n")


def test_summary_is_appended_to_the_ci_jobs_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    message = markdown.append_step_summary(empty("PROMOTE"), {markdown.VARIABLE: str(path)})
    assert message == f"summary: {path}"
    assert path.read_text(encoding="utf-8").startswith("before\n## ✅ PROMOTE: cpu\n")


def test_without_a_file_nothing_is_written() -> None:
    assert markdown.append_step_summary(empty(), {}) == ""
    assert markdown.append_step_summary(empty(), {markdown.VARIABLE: ""}) == ""


def test_unwritable_summary_file_is_reported(tmp_path: Path) -> None:
    message = markdown.append_step_summary(empty(), {markdown.VARIABLE: str(tmp_path)})
    assert message == (f"summary: not written to {tmp_path} ($GITHUB_STEP_SUMMARY): Is a directory")
