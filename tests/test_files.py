"""A file is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_vllm_gates.files import write_together, write_whole


def test_text_is_written_unchanged_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    write_whole(path, "one\r\ntwo\n☃")
    assert path.read_bytes() == "one\r\ntwo\n☃".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_write_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise error

    owner: object = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(type(error)):
        write_whole(path, "new and longer")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unencodable_text_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_several_files_are_written_together(tmp_path: Path) -> None:
    file, two = tmp_path / "lanes" / "a.txt", tmp_path / "lanes" / "a.toml"
    write_together({file: "1", two: "2"})
    assert (file.read_text(), two.read_text()) == ("1", "2")
    write_together({file: "3", two: "4"})
    assert sorted(path.name for path in file.parent.iterdir()) == ["a.toml", "a.txt"]
    assert (file.read_text(), two.read_text()) == ("3", "4")


def test_several_files_are_all_written_or_none(tmp_path: Path) -> None:
    old, new, last = tmp_path / "old", tmp_path / "new", tmp_path / "last"
    old.write_text("before")
    last.mkdir()  # a file cannot take the place of a folder
    with pytest.raises(OSError, match="last"):
        write_together({old: "after", new: "new", last: "last"})
    assert old.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "old"]
