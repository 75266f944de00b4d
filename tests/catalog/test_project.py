"""The project's folder is the nearest folder upward that has a gates project's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import project

PACKAGE = Path(project.__file__).parent.parent


@pytest.fixture
def inner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a folder of a folder; the folders above are not projects."""
    judge = project._is_project
    monkeypatch.setattr(
        project, "_is_project", lambda folder: folder.is_relative_to(tmp_path) and judge(folder)
    )
    folder = tmp_path / "outer" / "middle" / "inner"
    folder.mkdir(parents=True)
    return folder


def put(folder: Path, name: str, text: str = "") -> Path:
    """Write a file below a folder, and return the folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "lanes/mine.toml",
        "families/mine.toml",
        "conversations/mine.toml",
        "golden/qwen3.5/main/miniature/plain.txt",
        "golden/qwen3.5/miniature/plain.txt",
        "golden/baselines/one.json",
        "golden/incidents/2026-11-20-it/incident.json",
        "waivers.toml",
        ".vllm-gates/history.sqlite",
        "pyproject.toml",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
    ],
)
def test_folder_of_a_project_is_found_from_below(inner: Path, name: str) -> None:
    middle = put(inner.parent, name)
    put(middle.parent, "pyproject.toml")
    assert project.find(inner) == project.find(middle) == middle


@pytest.mark.parametrize(
    ("name", "table"), [("tox.ini", "[pytest]"), ("setup.cfg", "[tool:pytest]")]
)
def test_shared_configuration_counts_with_pytests_table(inner: Path, name: str, table: str) -> None:
    outer = put(inner.parent.parent, "pytest.ini")
    middle = put(inner.parent, name, "[other]\n")
    assert project.find(inner) == outer
    put(middle, name, f"[other]\n{table}\n")
    assert project.find(inner) == middle


@pytest.mark.parametrize("name", ["lanes/code.py", "golden/one/case.json", "golden/plain.txt"])
def test_other_folders_of_these_names_do_not_count(inner: Path, name: str) -> None:
    put(inner, name)
    outer = put(inner.parent.parent, "lanes/mine.toml")
    assert project.find(inner) == outer


def test_without_any_the_first_folder_is_taken(inner: Path) -> None:
    assert project.find(inner, inner.parent) == inner


def test_later_folders_count_if_the_first_is_outside_a_project(inner: Path) -> None:
    other = put(inner.parent.parent / "other", "lanes/mine.toml")
    assert project.find(inner, other / "gates" / "test_mine.py") == other


def test_package_itself_is_not_a_project() -> None:
    assert project.find(PACKAGE / "lanes") != PACKAGE
