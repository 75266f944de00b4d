"""A file or folder as an archive."""

from __future__ import annotations

import io
import sqlite3
import tarfile
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.gates_store.pack import packed

if TYPE_CHECKING:
    from pathlib import Path


def unpacked(data: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def test_a_database_is_packed_as_it_was_at_one_moment(tmp_path: Path) -> None:
    path, back = tmp_path / "history.sqlite", tmp_path / "back.sqlite"
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode=WAL")  # the last commit is in a second file
    file.execute("CREATE TABLE runs (number INTEGER)")
    file.execute("INSERT INTO runs VALUES (1)")
    file.execute("BEGIN")
    file.execute("INSERT INTO runs VALUES (2)")  # not committed
    back.write_bytes(unpacked(packed(path), "history.sqlite"))
    file.execute("COMMIT")
    file.close()
    copy = sqlite3.connect(back)
    assert copy.execute("SELECT number FROM runs").fetchall() == [(1,)]
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


def test_the_same_database_is_the_same_archive(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE runs (number INTEGER)")
    file.commit()
    file.close()
    assert packed(path) == packed(path)


def test_broken_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"no pages" * 200)
    with pytest.raises(UserError, match=r"history\.sqlite: a database that cannot be read"):
        packed(path)
