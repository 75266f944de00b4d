"""The terminal's output of a run, and the parts that it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

OWN = "def test_own(snapshot): assert snapshot == 1\n"


@pytest.fixture(autouse=True)
def _no_xdist_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """syrupy prints no summary in a worker, and these runs are none."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def test_summary_of_snapshots_is_left_out_where_only_gates_have_any(project: Project) -> None:
    """Its hint, --snapshot-update, does nothing for goldens."""
    output = project.gates().stdout.str()
    assert "verdict: " in output
    assert "snapshots passed" not in output
    assert "snapshot-update" not in output


def test_summary_of_a_projects_own_snapshots_stays(project: Project) -> None:
    project.write("test_own.py", OWN)
    assert "1 snapshot failed" in project.gates("test_own.py").stdout.str()


def test_requests_of_each_gate_are_counted(project: Project) -> None:
    project.write(
        "mine/test_own.py",
        "from pytest_vllm_gates.client import http\n\n"
        "def test_own(server):\n"
        "    for _ in range(3):\n"
        "        http.version(server)\n\n"
        "def test_nothing(server):\n"
        "    pass\n",
    )
    output = project.gates("mine", "-k", "own").stdout.str()
    assert "\nqwen3.5: 3 requests: own 3\n" in output
    (gate,) = project.verdict()["families"][0]["gates"]
    assert [test.get("requests") for test in gate["tests"]] == [3, None]


def test_mistyped_gate_is_reported(project: Project) -> None:
    result = project.gates("-m", "streeming")
    assert result.ret == 4
    assert "no test has the mark 'streeming'; did you mean 'streaming'?" in result.stderr.str()
