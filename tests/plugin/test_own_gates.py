"""A project's own gates work like the shipped ones, and ordinary tests are not gates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from verdicts import verdict_lines

if TYPE_CHECKING:
    from conftest import Project

OWN_GATE = """
import pytest
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.outcomes import *

def test_own(server, family, evidence):
    evidence["seen"] = {"url": server.base_url, "family": family.name}
    CODE
"""


def own(project: Project, code: str) -> None:
    project.write("mine/test_own.py", OWN_GATE.replace("CODE", code))


def test_projects_own_gate_runs_beside_the_shipped_gates(project: Project) -> None:
    own(project, "assert family.name == 'qwen3.5'")
    result = project.gates("mine")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: PROMOTE",
        "  - all 4 applicable gates passed (12 tests)",
    ]
    gate = project.verdict()["families"][0]["gates"][-1]
    assert gate["gate"] == "own"
    assert gate["tests"][0]["evidence"]["seen"]["family"] == "qwen3.5"


@pytest.mark.parametrize(
    ("code", "outcome", "letter", "status"),
    [
        ("assert 0, 'not so'", "FAIL", "F", 1),
        ("raise ValueError('a bug')", "FAIL", "F", 1),
        ("pytest.fail('no', pytrace=False)", "FAIL", "F", 1),
        ("raise Blocked('no database')", "BLOCKED", "B", 1),
        ("raise UserError('no such file')", "BLOCKED", "B", 1),
        ("raise MissingGolden('none')", "MISSING", "M", 1),
        ("raise MissingBaseline('none')", "MISSING", "M", 0),
        ("raise Inconclusive('noise')", "INCONCLUSIVE", "I", 0),
        ("raise NotApplicable('no tools')", "N/A", "-", 0),
        ("pytest.skip('later')", "INCONCLUSIVE", "I", 0),
    ],
)
def test_each_outcome_has_its_word_letter_and_exit_status(
    project: Project, code: str, outcome: str, letter: str, status: int
) -> None:
    own(project, code)
    reason = code.split("'")[1]
    result = project.gates("mine", "-k", "test_own")
    assert result.ret == status
    assert project.outcomes() == {"own::test_own[]": outcome}
    (gate,) = project.verdict()["families"][0]["gates"]
    assert reason in gate["reason"].splitlines()[0]
    assert gate["tests"][0]["evidence"]["seen"]
    output = result.stdout.str()
    assert re.search(rf"^(mine/test_own\.py )?{letter} +\[100%\]$", output, re.MULTILINE)
    ran = "0 tests, 1 n/a " if outcome == "N/A" else "1 test "
    assert re.search(rf"^qwen3\.5  own  {re.escape(outcome)} +{ran}", output, re.MULTILINE)
    if outcome not in ("FAIL", "N/A"):
        assert f"  - qwen3.5: own is {outcome}: {gate['reason']}" in verdict_lines(result)
    assert verdict_lines(result)[0] == f"verdict: {'REJECT' if outcome == 'FAIL' else 'HOLD'}"


def test_verbose_output_has_outcomes_as_words(project: Project) -> None:
    own(project, "raise Inconclusive('noise')")
    result = project.gates("mine", "-v", "-k", "test_own or test_boots")
    output = result.stdout.str()
    assert "gates/test_boot.py::test_boots[qwen3.5] PASSED" in output
    assert re.search(r"test_own\.py::test_own\[qwen3\.5\] INCONCLUSIVE", output)
    assert "a fake boots" in output, "the server's log is not streamed"


def test_a_failing_teardown_fails_the_test(project: Project) -> None:
    project.write(
        "mine/test_own.py",
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken():\n    yield\n    assert 0, 'not cleaned up'\n"
        "def test_own(server, broken): pass\n",
    )
    result = project.gates("mine", "-k", "test_own")
    assert result.ret == 1
    assert project.outcomes() == {"own::test_own[]": "FAIL"}


def test_ordinary_test_in_a_named_path_is_not_a_gate(project: Project) -> None:
    project.write("mine/test_plain.py", "def test_plain(): pass\n")
    result = project.gates("mine")
    assert result.ret == 0
    assert "all 3 applicable gates passed (11 tests)" in verdict_lines(result)[1]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("def test_plain(): assert 0", ()),
        ("import nothing_of_that_name", ("--continue-on-collection-errors",)),
    ],
    ids=["a test", "a file"],
)
def test_failure_beside_the_gates_prevents_the_promotion(
    project: Project, code: str, arguments: tuple[str, ...]
) -> None:
    project.write("mine/test_plain.py", code)
    result = project.gates("mine", *arguments)
    assert result.ret == 1
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - something besides the gates failed: an ordinary test, or a collection",
    ]
    assert project.verdict()["promotion"] == "HOLD"
