"""A run leaves no folder of other plugins behind that was not requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from conftest import Project

FOLDER = ".benchmarks"
TIMED = "def test_timed(benchmark): benchmark(len, 'ab')\n"


def test_run_leaves_no_empty_folder_of_pytest_benchmark(project: Project) -> None:
    assert "verdict: " in project.gates().stdout.str()
    assert not (project.path / FOLDER).exists()


def test_saved_benchmarks_of_a_project_stay(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest-benchmark saves nothing in a worker of xdist's, which this test may run in.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    project.write("test_timed.py", TIMED)
    project.gates("test_timed.py", "--benchmark-autosave", "-p", "no:xdist")
    (saved,) = (project.path / FOLDER).rglob("0001_*.json")
    assert saved.stat().st_size


def test_folder_that_is_named_stays(project: Project) -> None:
    project.gates("--benchmark-storage=file://./mine")
    assert (project.path / "mine").is_dir()


def test_run_without_a_model_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass\n")
    project.pytest("test_plain.py")
    assert (project.path / FOLDER).is_dir()
