"""The cases of `docs/field-cases.md` are answered as on the page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pytest_vllm_gates.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "field-cases.md"
ROW = re.compile(
    r"^\| (?P<case>[^|]+) \| `vllm-gates (?P<command>(?:explain|preflight) [^`]+)` "
    r"\| `(?P<answer>[^|`]+)` \|$"
)
CASES = [
    match for line in PAGE.read_text(encoding="utf-8").splitlines() if (match := ROW.match(line))
]
LOGS = [case for case in CASES if case["command"].startswith("explain")]
MACHINES = [case for case in CASES if case["command"].startswith("preflight")]
FIELD = Path(__file__).parents[1] / "recorded" / "field"
DOCUMENTS = ("Field manual", "Failures and fixes", "Qwen3-VL on RTX PRO 6000", "DGX Spark")


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["case"])
def test_case_is_answered_as_on_the_page(
    case: re.Match[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(Path(__file__).parent / "logs" / "kinds", tmp_path / "logs")
    monkeypatch.chdir(tmp_path / "logs")
    assert main(case["command"].split()) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.sub(r" \(\w+\)", "", first, count=1) == case["answer"]


@pytest.mark.parametrize("case", MACHINES, ids=lambda case: case["case"])
def test_machine_is_judged_as_on_the_page(
    case: re.Match[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(FIELD, tmp_path / "field")
    monkeypatch.chdir(tmp_path / "field")
    assert main(case["command"].split()) == 1
    lines = (line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines())
    answers = [f"{words[0]} {words[1]}: {words[2]}" for words in lines if "FAILS" in words[:2]]
    assert answers[0].startswith(case["answer"].strip()), answers


def test_every_document_has_cases() -> None:
    assert {case["case"].partition(":")[0] for case in MACHINES} == set(DOCUMENTS[2:])
    assert {case["case"].partition(":")[0] for case in CASES} == set(DOCUMENTS)
    assert len(LOGS) > 15 and len(MACHINES) > 7
