"""The history stores every run whole, with concurrent writers, and changes no foreign file."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest
from runs import entry

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.history import store as history_store
from pytest_vllm_gates.history.types import FILE

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_vllm_gates.history.types import HistoryEntry

PROCESSES, EACH = 6, 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


def test_appended_runs_are_read_oldest_first(path: Path) -> None:
    entries = [
        entry(0),
        entry(1, against="stable", promotion="REJECT", reasons=("a", "é"), exit_status=1),
        entry(2, checkpoints={"glm": "x", "gemma": "y"}, figures={"glm": {}, "gemma": {"a": 1.5}}),
    ]
    for history_entry in entries:
        history_store.append(path, history_entry)
    assert list(history_store.runs(path, 10)) == entries
    assert list(history_store.runs(path, 2)) == entries[1:]
    assert list(history_store.runs(path, 10, "glm")) == entries[2:]
    assert list(history_store.runs(path, 1, "qwen3.5")) == entries[1:2]
    assert history_store.runs(path, 10, "kimi") == ()
    assert history_store.families(path) == ("gemma", "glm", "qwen3.5")


def test_git_ignores_only_our_own_folder(path: Path, tmp_path: Path) -> None:
    history_store.append(path, entry())
    assert (path.parent / ".gitignore").read_text().splitlines()[-1] == "*"
    other_path = tmp_path / "kept" / "history.sqlite"
    history_store.append(other_path, entry())
    assert [file.name for file in other_path.parent.iterdir()] == ["history.sqlite"]
    (path.parent / ".gitignore").write_text("mine")
    history_store.append(path, entry())
    assert (path.parent / ".gitignore").read_text() == "mine"


def write_some(path: Path, start: int) -> None:
    for number in range(start, start + EACH):
        history_store.append(path, entry(exit_status=number))


def test_concurrent_writers_lose_nothing(path: Path) -> None:
    """None of them finds a file, so each makes it."""
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=write_some, args=(path, EACH * number))
        for number in range(PROCESSES)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [fork_process.exitcode for fork_process in writers] == [0] * PROCESSES
    entries = history_store.runs(path, 1000)
    assert sorted(history_entry.exit_status for history_entry in entries) == list(
        range(PROCESSES * EACH)
    )
    assert all(history_entry.figures == entry().figures for history_entry in entries)


def die_within(path: Path) -> None:
    file = history_store._connect(path, "rw")
    with history_store._transaction(file):
        file.execute("INSERT INTO families VALUES (99, 'half', 'x')")
        os._exit(9)


def test_run_of_a_process_that_died_is_not_stored(path: Path) -> None:
    history_store.append(path, entry())
    dies = multiprocessing.get_context("fork").Process(target=die_within, args=(path,))
    dies.start()
    dies.join(60)
    assert dies.exitcode == 9
    assert history_store.families(path) == ("qwen3.5",)
    history_store.append(path, entry(1))
    assert len(history_store.runs(path, 10)) == 2


def test_incomplete_run_is_not_stored(path: Path) -> None:
    history_store.append(path, entry())
    broken = entry(1, figures={"qwen3.5": {"boot_s": None}})
    with pytest.raises(UserError):
        history_store.append(path, broken)
    assert list(history_store.runs(path, 10)) == [entry()]


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE runs (mine TEXT)")
    file.close()


def newer(path: Path) -> None:
    history_store.append(path, entry())
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()


def damaged(path: Path) -> None:
    history_store.append(path, entry())
    content = path.read_bytes()
    path.write_bytes(content[:16] + b"\xff" * (len(content) - 16))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("no database, " * 100), "is damaged, or not a history: "),
        (damaged, "is damaged, or not a history: "),
        (foreign, "is a SQLite file of another program, and was not changed"),
        (
            newer,
            "has format 99, of a newer pytest-vllm-gates; this version supports formats up to 1",
        ),
    ],
    ids=["text", "damaged", "foreign", "newer"],
)
def test_foreign_file_is_refused_and_left_unchanged(path: Path, make: object, message: str) -> None:
    path.parent.mkdir()
    make(path)  # type: ignore[operator]
    before = path.read_bytes()
    for look in (lambda: history_store.append(path, entry()), lambda: history_store.runs(path, 1)):
        with pytest.raises(UserError) as raised:
            look()
        assert message in str(raised.value)
        assert str(path) in str(raised.value)
    assert path.read_bytes() == before


def test_empty_file_becomes_a_history(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert history_store.runs(path, 1) == ()
    history_store.append(path, entry())
    assert len(history_store.runs(path, 10)) == 1


def test_missing_history_names_the_command_that_writes_it(path: Path) -> None:
    with pytest.raises(UserError, match=r"no history in .*\n.*pytest --model NAME"):
        history_store.runs(path, 1)
    assert not path.parent.exists()


@pytest.mark.parametrize("name", ["file/history.sqlite", "folder"])
def test_unwritable_place_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="--gates-history PATH"):
        history_store.append(tmp_path / name, entry())


def test_file_of_an_older_format_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history_store.append(path, entry())
    step = ("CREATE TABLE more (x TEXT)",)
    monkeypatch.setattr(history_store, "MIGRATIONS", (*history_store.MIGRATIONS, step))
    entries: list[HistoryEntry] = [*history_store.runs(path, 10)]
    history_store.append(path, entry(1))
    assert entries == [entry()]
    assert len(history_store.runs(path, 10)) == 2
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
        assert file.execute("SELECT count(*) FROM more").fetchone() == (0,)
    file.close()
