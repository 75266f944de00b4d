"""A verdict becomes a run, and a run goes through its file unchanged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from atlas.made_runs import entry, verdict
from pytest_vllm_gates.atlas import runs
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

FAILED = "wrong (in 1 of 2 cases)\nfirst:\n  city is 'None'\n  asked with: {\"n\": 1}\n"
KNOWN = "It is lost (vllm-project/vllm#1)"


def test_parameters_of_a_test_are_one_with_the_worst_outcome() -> None:
    document = verdict(
        entry("test_a[qwen3.5-x]", "PASS"),
        entry("test_a[qwen3.5-y]", "FAIL", FAILED),
        entry("test_b[qwen3.5]", "BLOCKED", "the server died"),
        entry("test_b[qwen3.5-2]", "PASS"),
    )
    (run,) = runs.of_verdict(document, "9.9.9")
    assert [(test.test, test.outcome) for test in run.tests] == [("a", "FAIL"), ("b", "BLOCKED")]
    assert run.tests[0].requests == {"first": '{"n": 1}'}
    assert (run.release, run.family, run.gates, run.seconds) == (
        "0.31.0", "qwen3.5", "not load", 24.0,
    )  # fmt: skip


def test_release_of_the_folder_is_used_if_the_lane_names_none() -> None:
    (run,) = runs.of_verdict(verdict(vllm=None), "0.29.0")
    assert run.release == "0.29.0"


def test_family_that_does_not_boot_has_a_reason_and_no_tests() -> None:
    boot = {
        "ok": False,
        "failure": "\nthe server died at /root/x/y.py\nmore",
        "explanation": {"answer": {"title": "The port is taken"}},
        "times": None,
    }
    (run,) = runs.of_verdict(verdict(entry("test_a", "BLOCKED"), boot=boot), "0.31.0")
    assert run.boot == "The port is taken: the server died at y.py"
    assert run.tests == ()


def test_incident_gives_all_findings_of_its_own_test() -> None:
    found = {
        "family": "qwen3.5", "gate": "tools", "test": "test_a[qwen3.5]",
        "findings": [{"case": str(n), "says": f"{'x' * n} is gone"} for n in range(1, 4)],
    }  # fmt: skip
    document = verdict(
        entry("test_a[qwen3.5]", "FAIL", FAILED), entry("test_b[qwen3.5]", "FAIL", FAILED)
    )
    (run,) = runs.of_verdict(document, "", [found])
    assert [len(test.findings) for test in run.tests] == [3, 1]


def test_runs_go_through_their_file_unchanged(tmp_path: Path) -> None:
    document = verdict(
        entry("test_a", "FAIL", FAILED),
        entry("test_b", "KNOWN", known_defects=[KNOWN], known_in={"ref": ["one", "two"]}),
        entry("test_c", "PASS"),
        entry("test_d", "PASS"),
        entry("test_e", "FAIL", "routes differ", drift=["/v1/x"]),
        entry("test_f", "N/A"),
    )
    listed = runs.of_verdict(document, "")
    assert listed[0].tests[1].known_in == {"ref": ("one", "two")}
    assert listed[0].tests[4].drift
    file = tmp_path / "atlas.json"
    file.write_text(runs.text(listed))
    assert runs.read(file) == listed


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "x"}', '{"format": "pytest-vllm-gates/atlas", "version": 1}']
)
def test_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "atlas.json"
    file.write_text(text)
    with pytest.raises(UserError, match="write it again: vllm-gates atlas --table --record"):
        runs.read(file)


def test_unknown_outcome_is_refused(tmp_path: Path) -> None:
    listed = runs.of_verdict(verdict(entry("test_c", "PASS")), "")
    file = tmp_path / "atlas.json"
    file.write_text(json.dumps(runs.document(listed)).replace('"PASS"', '"PERHAPS"'))
    with pytest.raises(UserError, match="PERHAPS"):
        runs.read(file)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["pytest", "-m", "not load"], "not load"),
        (["python", "-m"], ""),
        (["pytest", "--model", "x"], ""),
    ],
)
def test_expression_of_the_command_is_found(command: list[str], expected: str) -> None:
    assert runs.expression(command) == expected
