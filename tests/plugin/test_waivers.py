"""A waiver lets one failure pass for a while, visibly, and nothing else."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

import pytest
from machines import put_in_place

from pytest_vllm_gates.catalog import waivers

if TYPE_CHECKING:
    from conftest import Project

OWN_GATE = """
import pytest
from pytest_vllm_gates.outcomes import *

@pytest.mark.parametrize("case", ["one", "two"])
def test_own(server, family, evidence, case):
    evidence["seen"] = case
    CODE
"""
FAILS = "assert case == 'one', 'two is wrong'"
SELECT = ("mine", "-k", "test_own or test_boots")
OWN = "qwen3.5: own: test_own"


def waive(project: Project, check: str, days: int = 5, more: str = "") -> datetime.date:
    """Write a waiver that ends in so many days; return its last day."""
    until = waivers.today() + datetime.timedelta(days=days)
    project.write(
        "waivers.toml",
        f'[[waiver]]\ncheck = "{check}"\nwho = "Jane"\nwhy = "a fix comes"\n'
        f"until = {until}\n{more}",
    )
    return until


def own(project: Project, code: str) -> None:
    project.write("mine/test_own.py", OWN_GATE.replace("CODE", code))


def lines_with(result: pytest.RunResult, start: str) -> list[str]:
    return [line for line in result.outlines if line.startswith(start)]


def test_waived_failure_promotes_and_is_listed(project: Project) -> None:
    own(project, FAILS)
    assert project.gates("mine").ret == 1
    until = waive(project, OWN)
    result = project.gates("mine", "--require-promotion", "--junitxml", "junit.xml")
    assert result.ret == 0
    assert lines_with(result, "verdict: ")[:1] == ["verdict: PROMOTE"]
    assert lines_with(result, "  - ") == [
        "  - all 4 applicable gates passed (12 tests); failures that are waived: 1"
    ]
    assert lines_with(result, "  waived: ") == [
        f"  waived: {OWN} (by Jane, until {until}: a fix comes)"
    ]
    (row,) = lines_with(result, "qwen3.5  own ")
    assert re.match(r"qwen3\.5  own +WAIVED +2 tests ", row)
    assert "12 passed, 1 waived" in result.stdout.str()
    assert re.search(r"\.W +\[100%\]$|^mine/test_own\.py \.W", result.stdout.str(), re.MULTILINE)
    verdict = project.verdict()
    assert verdict["waivers"] == [
        {
            "check": OWN,
            "who": "Jane",
            "why": "a fix comes",
            "until": str(until),
            "state": "used",
        }
    ]
    assert project.outcomes()["own::test_own[two]"] == "WAIVED"
    gate = verdict["families"][0]["gates"][-1]
    assert gate["tests"][1]["evidence"] == {"seen": "two"}
    assert gate["reason"].startswith(f"waived by Jane until {until} (a fix comes): two is wrong")
    junit = (project.path / "junit.xml").read_text()
    assert f"WAIVED: waived by Jane until {until} (a fix comes): two is wrong" in junit
    assert '<property name="outcome" value="WAIVED"' in junit


def test_single_case_can_be_waived(project: Project) -> None:
    own(project, "assert 0, case")
    waive(project, f"{OWN}[qwen3.5-two]")
    result = project.gates(*SELECT)
    assert result.ret == 1
    assert project.outcomes()["own::test_own[one]"] == "FAIL"
    assert project.outcomes()["own::test_own[two]"] == "WAIVED"
    assert lines_with(result, "verdict: ")[:1] == ["verdict: REJECT"]


def test_an_expired_waiver_fails_and_is_named(project: Project) -> None:
    own(project, FAILS)
    until = waive(project, OWN, days=-1)
    result = project.gates("mine")
    assert result.ret == 1
    assert lines_with(result, "verdict: ")[:1] == ["verdict: REJECT"]
    says = f"its waiver expired on {until} (by Jane: a fix comes): two is wrong"
    assert lines_with(result, "  - ")[0] == f"  - qwen3.5: own is FAIL: {says}"
    assert lines_with(result, "  waiver, expired: ") == [
        f"  waiver, expired: {OWN} (by Jane, until {until}: a fix comes)"
    ]
    assert says in result.outlines, "where the failure is shown the waiver is not"
    (waiver,) = project.verdict()["waivers"]
    assert waiver["state"] == "expired"


def test_unneeded_expired_waiver_is_listed_for_deletion(project: Project) -> None:
    own(project, "pass")
    waive(project, OWN, days=-1)
    result = project.gates("mine")
    assert result.ret == 0
    (line,) = lines_with(result, "  waiver, expired: ")
    assert line.endswith("nothing fails there any more (delete it)")

    waive(project, "qwen3.5: own: test_owl")
    result = project.gates("mine")
    assert lines_with(result, "verdict: ")[:1] == ["verdict: PROMOTE"]
    (line,) = lines_with(result, "  waiver, unused: ")
    assert line.endswith("no test of this run has that name (mend its check, or delete it)")
    assert project.verdict()["waivers"][0]["state"] == "unused"


@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [
        ("raise Blocked('no database')", "BLOCKED", 1),
        ("raise MissingGolden('none')", "MISSING", 1),
        ("raise Inconclusive('noise')", "INCONCLUSIVE", 0),
        ("pytest.skip('later')", "INCONCLUSIVE", 0),
    ],
)
def test_only_a_failure_can_be_waived(
    project: Project, code: str, outcome: str, status: int
) -> None:
    own(project, code)
    waive(project, "qwen3.5: own")
    result = project.gates(*SELECT)
    assert result.ret == status
    assert project.outcomes()["own::test_own[one]"] == outcome
    assert lines_with(result, "verdict: ")[:1] == ["verdict: HOLD"]
    assert lines_with(result, "  waiver, unused: ")


def test_deselected_test_is_not_waived(project: Project) -> None:
    own(project, FAILS)
    waive(project, "qwen3.5: own")
    result = project.gates("mine", "--deselect", "mine/test_own.py::test_own[qwen3.5-two]")
    assert lines_with(result, "verdict: ")[:1] == ["verdict: HOLD"]
    assert "  - 1 tests of the gates that ran were deselected" in result.outlines


def test_waived_failed_boot_still_yields_hold(project: Project) -> None:
    waive(project, "qwen3.5: boot: test_boots")
    result = project.gates(faults="dies")
    assert result.ret == 1
    assert project.outcomes()["boot::test_boots[]"] == "WAIVED"
    assert lines_with(result, "verdict: ")[:1] == ["verdict: HOLD"]


def test_failing_setup_and_teardown_can_be_waived(project: Project) -> None:
    project.write(
        "mine/test_own.py",
        "import pytest\n"
        "@pytest.fixture\ndef late():\n    yield\n    assert 0, 'not cleaned up'\n"
        "@pytest.fixture\ndef early():\n    assert 0, 'not set up'\n"
        "def test_late(server, late): pass\n"
        "def test_early(server, early): pass\n",
    )
    waive(project, "*: own: test_*")
    result = project.gates("mine", "-k", "test_late or test_early or test_boots")
    assert result.ret == 0
    assert project.outcomes() | {"boot::test_boots[]": "PASS"} == {
        "boot::test_boots[]": "PASS",
        "own::test_late[]": "WAIVED",
        "own::test_early[]": "WAIVED",
    }


def test_waiver_of_another_lane_does_not_apply(project: Project) -> None:
    own(project, FAILS)
    waive(project, OWN, more='lane = "cpu"\n')
    assert project.gates("mine").ret == 1
    assert project.verdict()["waivers"] == []
    waive(project, OWN, more='lane = "fake"\n')
    assert project.gates("mine").ret == 0


@pytest.mark.parametrize(
    ("check", "days", "says"),
    [
        ("qwen3.5: steaming", 5, "unknown gate 'steaming'; did you mean 'streaming'?"),
        ("qwen: own", 5, "unknown family 'qwen'; did you mean 'qwen3.5'?"),
        ("qwen3.5: *", 5, "the gate is one name, with no * in it"),
        (OWN, 91, "a waiver lasts at most 90 days"),
    ],
)
def test_invalid_waiver_is_refused_before_any_boot(
    project: Project, check: str, days: int, says: str
) -> None:
    own(project, FAILS)
    waive(project, check, days)
    result = project.gates("mine")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (line for line in result.errlines if line.startswith("ERROR: "))
    assert f"{project.path / 'waivers.toml'}:" in line
    assert says in line
    assert not project.key_file.exists()


def test_xdist_workers_apply_waivers(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(project.path / "bin", monkeypatch, "h100x8", 2)
    own(project, FAILS)
    waive(project, OWN)
    result = project.gates("-n", "1", "--junitxml", "junit.xml", *SELECT)
    assert result.ret == 0
    assert project.outcomes()["own::test_own[two]"] == "WAIVED"
    assert len(lines_with(result, "  waived: ")) == 1
    assert "2 passed, 1 waived" in result.stdout.str()
