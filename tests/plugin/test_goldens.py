"""What `--update-golden` writes, what it leaves alone, and what is said of either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vllm_gates.judge.golden import lock_golden

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

OWN = """\
title = "a question of ours"

[[messages]]
role = "user"
content = "Hm?"
"""
OTHER = lock_golden("one question, nothing else", {"messages": b"other"})
FOLDER = "golden/qwen3.5/miniature"


def folder(project: Project) -> Path:
    return project.path / FOLDER


def recorded(project: Project) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder(project).iterdir()}


def test_a_conversation_of_the_projects_own_is_asked_recorded_and_compared(
    project: Project,
) -> None:
    own = project.write("conversations/ours.toml", OWN)
    assert project.gates().ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[ours]"] == "MISSING"
    assert project.gates("--update-golden").ret == 0
    assert list(recorded(project)) == ["ours.txt"]
    assert project.gates("--require-promotion").ret == 0
    own.write_text(OWN.replace("Hm?", "What?"))
    result = project.gates()
    assert result.ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[ours]"] == "FAIL"
    assert "ours is not what was recorded" in result.stdout.str()


def test_a_conversation_of_the_projects_own_takes_the_shipped_ones_place(project: Project) -> None:
    project.write("conversations/plain.toml", OWN)
    assert project.gates("-m", "words").ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[plain]"] == "FAIL"


def test_only_what_was_asked_for_is_written(project: Project) -> None:
    for name in ("plain", "tool-one"):
        project.write(f"{FOLDER}/{name}.txt", OTHER)
    result = project.gates("-m", "words", "-k", "plain", "--update-golden")
    assert result.ret == 0
    assert f"  recorded (changed): {folder(project) / 'plain.txt'}" in result.outlines
    assert recorded(project)["plain.txt"] != OTHER
    assert recorded(project)["tool-one.txt"] == OTHER
    assert "thinking-off.txt" not in recorded(project)


def test_a_golden_that_is_the_same_is_not_written_again(project: Project) -> None:
    project.write("conversations/ours.toml", OWN)
    project.gates("--update-golden")
    before = (folder(project) / "ours.txt").stat().st_mtime_ns
    result = project.gates("--update-golden")
    assert (folder(project) / "ours.txt").stat().st_mtime_ns == before
    assert "recorded (" not in result.stdout.str()


def test_a_golden_nobody_uses_is_told_and_kept(project: Project) -> None:
    old = project.write(f"{FOLDER}/renamed-since.txt", OTHER)
    for more in ((), ("--update-golden",)):
        result = project.gates(*more)
        assert result.ret == 0
        assert f"  golden nobody uses (delete it?): {old}" in result.outlines
        assert old.read_text() == OTHER


def test_a_run_of_a_part_calls_no_golden_unused(project: Project) -> None:
    project.write(f"{FOLDER}/renamed-since.txt", OTHER)
    assert "nobody uses" not in project.gates("-m", "words", "-k", "plain").stdout.str()


def test_nothing_half_written_is_left_behind(project: Project) -> None:
    project.write("conversations/ours.toml", OWN)
    project.gates("--update-golden")
    assert [path.name for path in (project.path / "golden").rglob("*")] == [
        "qwen3.5", "miniature", "ours.txt",
    ]  # fmt: skip
