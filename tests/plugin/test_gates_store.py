"""Goldens from a store, and from the other lane where none are recorded."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest
from gates_store import team_stores
from gates_store.test_store import serves
from servers import running
from servers.raw import RawServer

from pytest_vllm_gates.gates_store.generations import GOLDEN, Shelf
from pytest_vllm_gates.gates_store.objects import Objects
from pytest_vllm_gates.session import golden_folders

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project


@pytest.fixture
def elsewhere(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The goldens of the shipped gates, in a folder that neither package nor project has."""
    del project
    store = tmp_path / "store"
    shutil.copytree(golden_folders.shipped_root(), store / "golden")
    monkeypatch.setattr(golden_folders, "shipped_root", lambda: tmp_path / "nowhere")
    return store


def words(project: Project) -> set[str]:
    found = project.outcomes()
    return {outcome for test, outcome in found.items() if test.startswith("words::")}


def archived(store: Path) -> Path:
    path = store.with_name("golden.tar.gz")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(store / "golden", "golden")
    return path


def test_goldens_are_missing_without_a_store(project: Project, elsewhere: Path) -> None:
    project.gates("-m", "words")
    assert words(project) == {"MISSING"}
    assert elsewhere.is_dir()


@pytest.mark.parametrize("kind", ["folder", "archive", "URL", "setting"])
def test_goldens_of_a_store_are_compared_with(project: Project, elsewhere: Path, kind: str) -> None:
    path = elsewhere if kind == "folder" else archived(elsewhere)
    before = {file: file.read_bytes() for file in elsewhere.rglob("*.txt")}
    if kind == "URL":
        with running(RawServer(serves(path.read_bytes()))) as server:
            source = f"http://127.0.0.1:{server.port}/golden.tar.gz"
            project.gates("-m", "words", "--gates-store", source)
    elif kind == "setting":
        project.pytester.makeini(f"[pytest]\ngates_store = {os.path.relpath(path, project.path)}\n")
        project.gates("-m", "words")
    else:
        project.gates("-m", "words", "--gates-store", str(path))
    assert words(project) == {"PASS"}
    assert {file: file.read_bytes() for file in elsewhere.rglob("*.txt")} == before
    assert not (project.path / "golden").exists()


def test_own_golden_lies_over_that_of_a_store(project: Project, elsewhere: Path) -> None:
    name = "qwen3.5/main/miniature/plain.txt"
    own = elsewhere / "golden" / name
    other = own.with_name("tool-one.txt").read_text()
    project.write(f"golden/{name}", other)
    project.gates("-m", "words", "--gates-store", str(elsewhere))
    assert project.outcomes()["words::test_words_are_the_recorded[plain]"] == "FAIL"
    assert words(project) == {"FAIL", "PASS"}


def test_invalid_store_ends_the_run_before_a_boot(project: Project) -> None:
    result = project.gates("-m", "boot", "--gates-store", "nowhere.tar.gz")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*nowhere.tar.gz' does not exist*"])


OWN_GATE = '''\
"""Texts that are the same on each lane, or not."""

import pytest

from pytest_vllm_gates.goldens import lock_golden

pytestmark = pytest.mark.texts


@pytest.mark.parametrize("name", ["alike", "unlike"])
def test_text_is_the_recorded(name, server, golden, lane):
    text = lane.name if name == "unlike" else "text"
    golden.check(name, lock_golden("a text", {"text": text.encode()}))
'''


def test_other_lane_takes_the_place_of_goldens(project: Project) -> None:
    """Nothing is recorded, and nothing is to be: what both give is what serves now."""
    project.lane()
    lane = project.path / "lanes" / "fake.toml"
    lane.with_name("stable.toml").write_text(lane.read_text())
    own = project.write("own_gates/test_texts.py", OWN_GATE)
    project.pytester.makeini("[pytest]\nmarkers =\n    texts: a gate of ours\n")
    arguments = ("--against", "stable", "-m", "texts", str(own))
    result = project.gates(*arguments)
    outcomes = {test.partition("[")[2]: outcome for test, outcome in project.outcomes().items()}
    assert sorted(outcomes.items()) == [("alike]", "PASS"), ("unlike]", "FAIL")], outcomes
    note = "texts: no golden is recorded; compared with the output of lane stable"
    assert [line for line in result.outlines if note in line]
    seen = project.report / "against" / "golden" / "qwen3.5" / "main" / "miniature"
    assert sorted(path.name for path in seen.iterdir()) == ["alike.txt", "unlike.txt"]
    assert not (project.path / "golden").exists()
    theirs = project.verdict()["against"]["checks"]
    assert {check["theirs"] for check in theirs} <= {"MISSING"}
    project.gates("-m", "texts", str(own))
    assert {*project.outcomes().values()} == {"MISSING"}, "without another lane it is missing"


def test_goldens_come_from_a_team_store(
    project: Project, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with team_stores.s3(monkeypatch) as source:
        Shelf(Objects(source), GOLDEN).push(elsewhere / "golden")
        project.gates("-m", "words", "--gates-store", source)
    assert words(project) == {"PASS"}
