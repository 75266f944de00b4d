"""The folders of goldens, and the command that moves goldens from the old folder."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.session.golden_folders import folder, notes, old_folder
from pytest_vllm_gates.session.run import Subject

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.catalog.family import Family


@pytest.fixture
def subject(qwen: Family) -> Subject:
    return of(qwen, "weights")


def of(family: Family, checkpoint: str, name: str = "qwen3.5") -> Subject:
    return Subject(family.model_copy(update={"name": name}), Checkpoint(checkpoint, "/nowhere"))


def write(project: Path, *names: str) -> None:
    for name in names:
        path = project / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def files(project: Path) -> list[str]:
    root = project / "golden"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def git(project: Path, *words: str) -> str:
    env = {"HOME": str(project), "PATH": os.environ["PATH"]}
    ran = subprocess.run(
        ["git", *words], cwd=project, env=env, check=True, capture_output=True, text=True
    )
    return ran.stdout


def moved(project: Path, subject: Subject, here: Path | None = None) -> str:
    """Run the note's command unchanged, assert that the note is gone, and return the command."""
    told, command = notes(project, here or project, subject)
    assert told.startswith("goldens are still read from their old folder golden/qwen3.5/")
    subprocess.run(["sh", "-eu", "-c", command], cwd=here or project, check=True)
    assert list(notes(project, here or project, subject)) == []
    return command.strip()


@pytest.mark.parametrize(
    ("name", "checkpoint", "new", "old"),
    [
        ("qwen3.5", "miniature", "qwen3.5/main/miniature", "qwen3.5/miniature"),
        ("qwen3.5/moe", "miniature", "qwen3.5/moe/miniature", None),
        ("qwen3.5", "moe", "qwen3.5/main/moe", "qwen3.5/moe"),
        ("qwen3.5", "main", "qwen3.5/main/main", "qwen3.5/main"),
        ("gemma/3", "google--gemma-3-1b", "gemma/3/google--gemma-3-1b", None),
    ],
)
def test_member_and_checkpoint_have_a_level_each(
    tmp_path: Path, qwen: Family, name: str, checkpoint: str, new: str, *, old: str | None
) -> None:
    subject = of(qwen, checkpoint, name)
    assert folder(tmp_path, subject) == tmp_path / new
    assert old_folder(tmp_path, subject) == (tmp_path / old if old else None)


def test_without_old_goldens_there_is_nothing_to_do(
    tmp_path: Path, qwen: Family, subject: Subject
) -> None:
    assert list(notes(tmp_path, tmp_path, subject)) == []
    write(
        tmp_path,
        "qwen3.5/main/weights/a.txt",
        "qwen3.5/moe/weights/a.txt",
        "qwen3.5/weights/notes.md",
        "qwen3.5/weights/._a.txt",
    )
    for checkpoint in ("weights", "main", "moe"):
        assert list(notes(tmp_path, tmp_path, of(qwen, checkpoint))) == []
    assert list(notes(tmp_path, tmp_path, of(qwen, "weights", "qwen3.5/moe"))) == []


def test_a_folder_is_moved_as_a_whole(tmp_path: Path, subject: Subject) -> None:
    write(tmp_path, "qwen3.5/weights/a.txt", "qwen3.5/weights/b.txt", "qwen3.5/weights/why.md")
    assert moved(tmp_path, subject) == (
        "mkdir -p golden/qwen3.5/main && mv golden/qwen3.5/weights golden/qwen3.5/main/weights"
    )
    assert files(tmp_path) == [
        f"qwen3.5/main/weights/{name}" for name in ("a.txt", "b.txt", "why.md")
    ]


def test_tracked_files_are_moved_by_git(tmp_path: Path, subject: Subject) -> None:
    write(tmp_path, "qwen3.5/weights/a.txt", "qwen3.5/weights/b.txt")
    git(tmp_path, "init")
    git(tmp_path, "add", "golden/qwen3.5/weights/a.txt")
    told = list(notes(tmp_path, tmp_path, subject))
    assert "&& mv golden/qwen3.5/weights " in told[1]  # git does not know b.txt
    git(tmp_path, "add", "golden")
    assert moved(tmp_path, subject) == (
        "mkdir -p golden/qwen3.5/main && git mv golden/qwen3.5/weights golden/qwen3.5/main/weights"
    )
    assert git(tmp_path, "ls-files").split() == [
        "golden/qwen3.5/main/weights/a.txt", "golden/qwen3.5/main/weights/b.txt",
    ]  # fmt: skip


def test_without_git_files_are_moved_without_it(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "qwen3.5/weights/a.txt")
    git(tmp_path, "init")
    git(tmp_path, "add", "golden")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "&& mv golden" in list(notes(tmp_path, tmp_path, subject))[1]


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("checkpoint", ["moe", "main"])
def test_a_folder_with_other_files_stays(
    tmp_path: Path, qwen: Family, checkpoint: str, *, tracked: bool
) -> None:
    old = f"qwen3.5/{checkpoint}"
    write(tmp_path, f"{old}/a.txt", f"{old}/b.txt", f"{old}/miniature/a.txt")
    if tracked:
        git(tmp_path, "init")
        git(tmp_path, "add", ".")
    command = moved(tmp_path, of(qwen, checkpoint))
    new = f"qwen3.5/main/{checkpoint}"
    move = "git mv -k" if tracked else "mv -n"
    assert command == f"mkdir -p golden/{new} && {move} golden/{old}/*.txt golden/{new}/"
    assert files(tmp_path) == sorted([f"{new}/a.txt", f"{new}/b.txt", f"{old}/miniature/a.txt"])


def test_an_old_folder_called_main_is_moved_below_itself(tmp_path: Path, qwen: Family) -> None:
    write(tmp_path, "qwen3.5/main/a.txt")
    moved(tmp_path, of(qwen, "main"))
    assert files(tmp_path) == ["qwen3.5/main/main/a.txt"]


@pytest.mark.parametrize("tracked", [True, False])
def test_nothing_is_written_over(tmp_path: Path, subject: Subject, *, tracked: bool) -> None:
    old, new = "qwen3.5/weights", "qwen3.5/main/weights"
    write(tmp_path, f"{old}/a.txt", f"{old}/b.txt", f"{new}/a.txt")
    if tracked:
        git(tmp_path, "init")
        git(tmp_path, "add", ".")
    _, command, unread = notes(tmp_path, tmp_path, subject)
    assert unread == (
        "old goldens are not read, because golden/qwen3.5/main/weights contains newer ones "
        "(delete them?): golden/qwen3.5/weights/a.txt"
    )
    # `mv -n` may exit 1 for a file that it does not move.
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False)
    assert files(tmp_path) == sorted([f"{new}/a.txt", f"{new}/b.txt", f"{old}/a.txt"])
    assert (tmp_path / "golden" / new / "a.txt").read_text() == f"{new}/a.txt"
    assert list(notes(tmp_path, tmp_path, subject)) == [unread]


def test_an_empty_new_folder_takes_the_files(tmp_path: Path, subject: Subject) -> None:
    write(tmp_path, "qwen3.5/weights/a.txt")
    (tmp_path / "golden/qwen3.5/main/weights").mkdir(parents=True)
    moved(tmp_path, subject)
    assert files(tmp_path) == ["qwen3.5/main/weights/a.txt"]


def test_the_command_is_quoted_and_works_from_any_folder(tmp_path: Path, qwen: Family) -> None:
    project, here = tmp_path / "my project", tmp_path / "here"
    here.mkdir()
    write(project, "qwen3.5/it's mine/a.txt")
    command = moved(project, of(qwen, "it's mine"), here)
    assert command.startswith(f"cd '{project}' && mkdir -p golden/qwen3.5/main && mv ")
    assert files(project) == ["qwen3.5/main/it's mine/a.txt"]
