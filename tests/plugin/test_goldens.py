"""The goldens that `--update-golden` writes or leaves alone, and the messages about them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from verdicts import verdict_lines

from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.goldens import lock_golden
from pytest_vllm_gates.verdict import gates as verdict_gates

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
FOLDER = "golden/qwen3.5/main/miniature"


def folder(project: Project) -> Path:
    return project.path / FOLDER


def recorded(project: Project) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder(project).iterdir()}


def test_a_conversation_of_the_projects_own_is_sent_recorded_and_compared(
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


def test_only_the_selected_goldens_are_written(project: Project) -> None:
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


def test_an_unused_golden_is_reported_and_kept(project: Project) -> None:
    old = project.write(f"{FOLDER}/renamed-since.txt", OTHER)
    for more in ((), ("--update-golden",)):
        result = project.gates(*more)
        assert result.ret == 0
        assert f"  unused golden (delete it?): {old}" in result.outlines
        assert old.read_text() == OTHER


def test_a_run_of_a_part_calls_no_golden_unused(project: Project) -> None:
    project.write(f"{FOLDER}/renamed-since.txt", OTHER)
    assert "nobody uses" not in project.gates("-m", "words", "-k", "plain").stdout.str()


def test_nothing_half_written_is_left_behind(project: Project) -> None:
    project.write("conversations/ours.toml", OWN)
    project.gates("--update-golden")
    assert [path.name for path in (project.path / "golden").rglob("*")] == [
        "qwen3.5", "main", "miniature", "ours.txt",
    ]  # fmt: skip


def test_a_missing_golden_is_reported_with_the_command_that_records_it(
    project: Project,
) -> None:
    project.write("conversations/new.toml", OWN)
    result = project.gates()
    assert result.ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[new]"] == "MISSING"
    record = "pytest --model qwen3.5 --lane fake -m words --update-golden"
    assert verdict_lines(result) == [
        "verdict: HOLD",
        f"  - qwen3.5: words is MISSING: no golden 'new'; record it: {record}",
    ]
    golden = folder(project) / "new.txt"
    assert f"it would be {golden}" in str(project.verdict())
    assert not golden.exists()
    assert "11 passed, 1 missing" in result.stdout.str()


def test_a_recording_run_yields_hold_and_the_next_one_passes(project: Project) -> None:
    project.write("conversations/new.toml", OWN)
    result = project.gates("--update-golden")
    assert result.ret == 0
    assert verdict_lines(result) == [
        "verdict: HOLD",
        "  - this run recorded goldens (1 written): run it again without --update-golden",
    ]
    assert f"  recorded (new): {folder(project) / 'new.txt'}" in result.outlines
    assert list(recorded(project)) == ["new.txt"]
    assert project.gates("--require-promotion").ret == 0
    assert project.verdict()["promotion"] == "PROMOTE"


def test_a_recording_run_that_changes_nothing_still_yields_hold(project: Project) -> None:
    result = project.gates("--update-golden", "--require-promotion")
    assert result.ret == 6
    assert "(0 written)" in verdict_lines(result)[1]
    assert not (project.path / "golden").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("golden 1: lock: x\n\n12  mess", "has no last line 'end of golden': it was cut short"),
        (
            "<<<<<<< HEAD\n=======\n>>>>>>> x\n",
            "contains the conflict markers of an unresolved merge",
        ),
    ],
)
def test_a_corrupt_golden_fails_and_is_replaced_when_recording(
    project: Project, text: str, told: str
) -> None:
    path = project.write(f"{FOLDER}/plain.txt", text)
    arguments = ("-m", "words", "-k", "plain")
    result = project.gates(*arguments)
    assert result.ret == 1
    assert project.outcomes() == {"words::test_words_are_the_recorded[plain]": "FAIL"}
    assert f"the golden is corrupt: {path} {told}" in result.stdout.str()
    assert (
        f"restore it (git checkout -- {FOLDER}/plain.txt) or record it again: pytest"
        in result.stdout.str()
    )
    assert path.read_text() == text

    result = project.gates(*arguments, "--update-golden")
    assert result.ret == 0
    assert f"  recorded (new): {path}" in result.outlines
    assert project.gates(*arguments).ret == 0


def test_a_golden_that_differs_fails_with_the_lines_that_do(project: Project) -> None:
    changed = "golden 1: lock: one question, nothing else\n\n0123  messages\n\nend of golden\n"
    path = project.write(f"{FOLDER}/plain.txt", changed)
    result = project.gates("-m", "words")
    assert result.ret == 1
    told = result.stdout.str()
    assert f"plain is not what was recorded in {path}" in told
    assert re.search(r"^E +- 0123  messages$", told, re.MULTILINE)
    assert "\x1b" not in told + project.verdict()["families"][0]["gates"][0]["reason"]
    assert "accept it: pytest --model qwen3.5 --lane fake -m words --update-golden" in told
    assert path.read_text() == changed


INCIDENTS_GATE = verdict_gates.GATES / "test_incidents.py"
OLD = "golden/qwen3.5/miniature"
READ = f"  goldens are still read from their old folder {OLD}; to move them, run:"
MOVE = "mkdir -p golden/qwen3.5/main && mv golden/qwen3.5/miniature golden/qwen3.5/main/miniature"
UNREAD = f"  old goldens are not read, because {FOLDER} contains newer ones (delete them?): "


def ours(project: Project) -> str:
    """Write a conversation of the project's own, and return its golden's text."""
    project.write("conversations/ours.toml", OWN)
    parts = {"messages": json.dumps([{"role": "user", "content": "Hm?"}]).encode()}
    return lock_golden("a question of ours", parts)


def move(project: Project, result: pytest.RunResult, read: str = READ) -> None:
    """Run the command that the run printed after its note, unchanged."""
    # Some `mv -n` exit 1 if they leave a file in its place.
    command = result.outlines[result.outlines.index(read) + 1]
    subprocess.run(["sh", "-c", command], cwd=project.path, check=False)


def old_notes(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "goldens are" in line or "nobody uses" in line]


def test_old_goldens_are_read_and_the_printed_command_moves_them(project: Project) -> None:
    old = project.write(f"{OLD}/ours.txt", ours(project))
    for arguments in ((), ("-m", "words", "-k", "plain")):
        result = project.gates(*arguments)
        assert result.ret == 0
        assert old_notes(result) == [READ]
        assert f"    {MOVE}" in result.outlines
        assert project.outcomes()["words::test_words_are_the_recorded[plain]"] == "PASS"

    move(project, result)
    assert list(recorded(project)) == ["ours.txt"]
    assert not old.parent.exists()
    result = project.gates("--require-promotion")
    assert (result.ret, old_notes(result)) == (0, [])


def test_an_old_golden_comes_before_the_shipped_one(project: Project) -> None:
    path = project.write(f"{OLD}/plain.txt", OTHER)
    result = project.gates("-m", "words")
    assert result.ret == 1
    assert project.outcomes()["words::test_words_are_the_recorded[plain]"] == "FAIL"
    assert f"plain is not what was recorded in {path}" in result.stdout.str()


def test_a_broken_old_golden_fails_until_it_is_recorded_again(project: Project) -> None:
    path = project.write(f"{OLD}/plain.txt", "golden 1: lock: x\n\n12  mess")
    arguments = ("-m", "words", "-k", "plain")
    result = project.gates(*arguments)
    assert result.ret == 1
    told = f"the golden is corrupt: {path} has no last line 'end of golden': it was cut short"
    assert told in result.stdout.str()
    assert READ in result.outlines

    assert project.gates(*arguments, "--update-golden").ret == 0
    result = project.gates(*arguments)
    assert result.ret == 0
    assert old_notes(result) == [f"{UNREAD}{OLD}/plain.txt"]


def test_recording_writes_to_the_new_folder_only(project: Project) -> None:
    same = project.write(f"{OLD}/ours.txt", ours(project))
    changed = project.write(f"{OLD}/plain.txt", OTHER)
    result = project.gates("--update-golden")
    assert result.ret == 0
    assert f"  recorded (changed): {folder(project) / 'plain.txt'}" in result.outlines
    assert list(recorded(project)) == ["plain.txt"]
    assert (same.read_text(), changed.read_text()) == (ours(project), OTHER)
    # A golden that a partial recording did not write again is still read from its old place.
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert old_notes(result) == [READ, f"{UNREAD}{OLD}/plain.txt"]

    written = recorded(project)["plain.txt"]
    move(project, result)
    assert recorded(project) == {"ours.txt": ours(project), "plain.txt": written}
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert old_notes(result) == [f"{UNREAD}{OLD}/plain.txt"]


def test_where_both_are_there_the_new_one_counts(project: Project) -> None:
    project.write(f"{FOLDER}/ours.txt", ours(project))
    project.write(f"{OLD}/ours.txt", OTHER)
    result = project.gates("--require-promotion")
    assert result.ret == 0
    assert old_notes(result) == [f"{UNREAD}{OLD}/ours.txt"]


def test_an_old_checkpoint_may_be_called_like_a_member(project: Project) -> None:
    weights = project.path / "weights" / "moe"
    shutil.copytree(miniatures.path("qwen3.5"), weights)
    arguments = ("--checkpoint", str(weights), "-m", "words", "-k", "ours")
    project.write("golden/qwen3.5/moe/ours.txt", ours(project))
    member = project.write("golden/qwen3.5/moe/miniature/ours.txt", OTHER)
    result = project.gates(*arguments)
    assert result.ret == 0
    read = READ.replace(OLD, "golden/qwen3.5/moe")
    assert old_notes(result) == [read]

    move(project, result, read)
    result = project.gates(*arguments)
    assert (result.ret, old_notes(result)) == (0, [])
    assert member.read_text() == OTHER
    files = [path for path in (project.path / "golden").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(project.path)) for path in files) == [
        "golden/qwen3.5/main/moe/ours.txt", "golden/qwen3.5/moe/miniature/ours.txt",
    ]  # fmt: skip


def test_a_members_goldens_are_where_they_were(project: Project) -> None:
    ours(project)
    project.lane()
    arguments = ("--model", "qwen3.5/moe", "--lane", "fake", "-m", "words", "-k", "ours")
    result = project.pytest(*arguments, "--update-golden")
    written = project.path / "golden/qwen3.5/moe/miniature/ours.txt"
    assert f"  recorded (new): {written}" in result.outlines
    result = project.pytest(*arguments)
    assert (result.ret, old_notes(result)) == (0, [])


def test_a_failure_of_an_old_golden_leaves_it_in_its_incident(project: Project) -> None:
    shutil.copy(INCIDENTS_GATE, verdict_gates.GATES)
    path = project.write(f"{OLD}/plain.txt", OTHER)
    project.gates("-m", "words", "-k", "plain")
    (incident,) = project.verdict()["incidents"]
    kept = project.report / incident["path"]
    assert (kept / "expected/plain.txt").read_text() == OTHER
    path.unlink()
    result = project.pytest("--repro", str(kept), "--lane", "fake")
    assert "REPRODUCED" in result.stdout.str()
    assert f"plain is not what was recorded in {kept / 'expected/plain.txt'}" in result.stdout.str()
