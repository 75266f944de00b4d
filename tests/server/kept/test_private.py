"""Files of kept servers are read only if they are regular, bounded and private."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.server.kept import private

if TYPE_CHECKING:
    from pathlib import Path


def test_written_file_is_private_even_if_the_old_one_was_not(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "record.json", tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (tmp_path / "record.json.new").symlink_to(elsewhere)
    private.write(path, "{}")
    assert private.read(path) == "{}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert elsewhere.read_text() == "untouched"
    assert sorted(tmp_path.iterdir()) == [elsewhere, path]


def test_link_fifo_device_and_folder_are_not_read(tmp_path: Path) -> None:
    private.write(tmp_path / "file", "x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("link", "zero", "fifo", "folder", "absent"):
        with pytest.raises(OSError, match=name):
            private.read(tmp_path / name)
        assert not private.is_file(tmp_path / name)
    assert private.is_file(tmp_path / "file")


def test_file_open_to_others_is_not_read(tmp_path: Path) -> None:
    private.write(tmp_path / "file", "x")
    (tmp_path / "file").chmod(0o640)
    with pytest.raises(PermissionError, match=r"is open to others \(mode 0640\)"):
        private.read(tmp_path / "file")


def test_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private.write(tmp_path / "file", "x")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match="belongs to"):
        private.read(tmp_path / "file")
    assert not private.is_file(tmp_path / "file")


def test_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2**40)
    (tmp_path / "file").chmod(0o600)
    with pytest.raises(OSError, match="more than 16777216 bytes"):
        private.read(tmp_path / "file")
